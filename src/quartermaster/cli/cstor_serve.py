"""`qm cstor serve`: the rules of cStor clusters as an HTTP service."""

from __future__ import annotations

from pathlib import Path

import click

from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor serve                                             on 127.0.0.1:8474, for this machine
  qm cstor serve --listen 0.0.0.0:8474 --token-file token --tls-cert tls.crt --tls-key tls.key
  curl http://127.0.0.1:8474/openapi.json                    what it offers
"""


@click.command(short_help="Serve the hooks over HTTP.", epilog=EPILOG)
@click.option("--listen", metavar="HOST:PORT", default="127.0.0.1:8474", show_default=True, help="Where to serve.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="The certificate, PEM; read again when it changes.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The key of the certificate.")
@click.option("--token-file", type=click.Path(path_type=Path), help="A file with the bearer token that callers need.")
@click.option("--max-request-size", metavar="SIZE", default="64Mi", show_default=True, help="The largest request.")
@click.option(
    "--health-listen", metavar="HOST:PORT", default="", help="Serve health and metrics there too, to anybody."
)
@click.option("-v", "--verbose", count=True, help="More on standard error; twice for all of it.")
@click.pass_obj
def command(
    session: Session,
    *,
    listen: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    max_request_size: str,
    health_listen: str,
    verbose: int,
) -> None:
    """Serve the hooks over HTTP, in the foreground, until it is interrupted.

    The business logic of cStor clusters, called by `qm cstor controller --hooks URL` or by metac. Nothing is stored and
    no call has an effect: an answer says what should be, and the caller makes it so.
    """
    from quartermaster.backends.cstor import HOOKS
    from quartermaster.cli.cstor_running import Secrets, serve, service_options

    session.override(store_url=None, namespace=None, verbosity=verbose)
    options = service_options(listen, max_request_size)
    secrets = Secrets(certificate=tls_cert, key=tls_key, token=token_file)
    session.run(lambda: serve(HOOKS, options, secrets, health_listen))
