"""`qm cstor conformance controller`: what watches ConformanceReports and has them run."""

from __future__ import annotations

from pathlib import Path

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor conformance controller                                   scenarios run in this process
  qm cstor conformance controller --hooks http://127.0.0.1:8476     at `qm cstor conformance serve`
"""


@click.command(short_help="Run what is asked for by ConformanceReports.", epilog=EPILOG)
@click.option("--hooks", metavar="URL|in-process", default="in-process", show_default=True, help="Who runs scenarios.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the bearer token of the service.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="The authority of the service's certificate, PEM.")
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics there.")
@click.option("--watch-namespace", metavar="NAME", help="Look at the reports of this namespace only.")
@store_options
def command(
    session: Session,
    *,
    hooks: str,
    token_file: Path | None,
    ca_file: Path | None,
    listen: str,
    watch_namespace: str | None,
) -> None:
    """Run what is asked for by ConformanceReports, in the foreground, until it is interrupted.

    Several may run: one of them leads, the others wait. The Lease by which they agree is in the namespace
    openebs, or in that of -n: give the same one to all.
    """
    from quartermaster.cli.cstor_conformance_running import control_conformance
    from quartermaster.cli.cstor_running import Controlled, HooksAt

    place = HooksAt(url="" if hooks == "in-process" else hooks, token=token_file, authority=ca_file)
    controlled = Controlled(listen=listen, watch_namespace=watch_namespace, workers=1)
    session.run(lambda: control_conformance(session, place, controlled), resident=True)
