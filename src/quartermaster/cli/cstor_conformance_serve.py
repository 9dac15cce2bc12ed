"""`qm cstor conformance serve`: the scenarios behind an HTTP service, as the core's rules are behind theirs."""

from __future__ import annotations

from pathlib import Path

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor conformance serve                                  on 127.0.0.1:8476
  qm cstor conformance serve --listen 0.0.0.0:8476 --token-file token --tls-cert tls.crt --tls-key tls.key
  curl http://127.0.0.1:8476/report/default/nightly.xml       a result as JUnit XML
"""


@click.command(short_help="Serve the conformance hook, which runs scenarios.", epilog=EPILOG)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8476", show_default=True, help="Where to serve.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate, PEM; read again when it changes.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The key of the certificate.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the bearer token that callers need.")
@click.option(
    "--health-listen", metavar="HOST:PORT", default="", help="Serve health and metrics there too, to anybody."
)
@store_options
def command(
    session: Session,
    *,
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    health_listen: str,
) -> None:
    """Serve the conformance hook, in the foreground, until it is interrupted.

    Called by `qm cstor conformance controller --hooks URL`. It drives the installation of the chosen store: it makes
    and deletes CStorClusterConfigs there, and labels nodes.
    """
    from quartermaster.cli.cstor_conformance_running import serve_conformance
    from quartermaster.cli.cstor_running import Secrets, service_options

    options = service_options(listen, "1Mi")
    secrets = Secrets(certificate=tls_cert, key=tls_key, token=token_file)
    session.run(lambda: serve_conformance(session, options, secrets, health_listen), resident=True)
