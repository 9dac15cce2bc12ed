"""`qm cstor controller`: what watches a store and makes true what the hooks say."""

from __future__ import annotations

from pathlib import Path

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor controller                                      the hooks run in this process
  qm cstor controller --hooks http://127.0.0.1:8474        the hooks of `qm cstor serve`
  qm cstor controller --hooks https://hooks:8474 --ca-file ca.crt --token-file token
  qm cstor controller --store kubernetes:lab --listen 127.0.0.1:9102
"""


@click.command(short_help="Run the controller of cStor clusters.", epilog=EPILOG)
@click.option("--hooks", metavar="URL|in-process", default="in-process", show_default=True, help="Where the hooks are.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the bearer token of the hook service.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="The authority of the service's certificate, PEM.")
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics there.")
@click.option("--watch-namespace", metavar="NAME", help="Serve the objects of this namespace only.")
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Objects of a kind at once.")
@store_options
def command(
    session: Session,
    *,
    hooks: str,
    token_file: Path | None,
    ca_file: Path | None,
    listen: str,
    watch_namespace: str | None,
    workers: int,
) -> None:
    """Run the controller of cStor clusters, in the foreground, until it is interrupted.

    Several may run: one of them leads, the others wait. The Lease by which they agree is in the namespace
    openebs, or in that of -n: give the same one to all.
    """
    from quartermaster.cli.cstor_running import Controlled, HooksAt, control

    place = HooksAt(url="" if hooks == "in-process" else hooks, token=token_file, authority=ca_file)
    controlled = Controlled(listen=listen, watch_namespace=watch_namespace, workers=workers)
    session.run(lambda: control(session, place, controlled), resident=True)
