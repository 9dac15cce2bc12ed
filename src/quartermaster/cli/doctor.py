"""`qm doctor`: is this host fit, and does what runs on it work?"""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm doctor                        this host, its programs and its store
  qm doctor --type glusterfs       and whether it can be a node of that storage system
  qm doctor --no-store             before there is any store
  qm doctor -o json

It ends with 1 when something must be mended.
"""


@click.command(short_help="Look for what is wrong with this host.", epilog=EPILOG)
@click.option(
    "--type", "types", metavar="TYPE", multiple=True, help="A storage system that is to work here; may be repeated."
)
@click.option("--no-store", is_flag=True, help="Do not ask the store.")
@output_option_of(("json", "yaml"))
@store_options
def command(session: Session, *, types: tuple[str, ...], no_store: bool, output: str) -> None:
    """Look for what is wrong with this host, and say how to mend it.

    Looks at the kernel, the programs that each storage system needs and the packages that have them, the space, the
    clock, the ports, the rights, the agent of this host and the store. Nothing is changed.
    """
    from quartermaster.cli.doctoring import examine

    if code := session.run(lambda: examine(session, types, asks_store=not no_store, output=output)):
        raise click.exceptions.Exit(code)
