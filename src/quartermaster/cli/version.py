"""`qm version`: which program this is, and which store it talks to."""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm version
  qm version --client          without asking the store
  qm version -o json
"""


@click.command(short_help="Show the version of this program and of the store.", epilog=EPILOG)
@click.option("--client", is_flag=True, help="Do not ask the store.")
@output_option_of(("yaml", "json"))
@store_options
def command(session: Session, *, client: bool, output: str) -> None:
    """Show the version of this program and of the store.

    The exit code is 1 when the store does not answer, or refuses.
    """
    from quartermaster.cli.versions import show

    if code := show(session, client_only=client, output=output):
        raise click.exceptions.Exit(code)
