"""`qm describe`: one object in full, for people."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_targets
from quartermaster.cli.options import selector_options, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm describe storagenode storage-node1
  qm describe storagestatus                all of the namespace
  qm describe sn -l rack=a
"""


@click.command(short_help="Show one object in full, with its conditions and Events.", epilog=EPILOG)
@click.argument(
    "words", metavar="TYPE [NAME...] | TYPE/NAME...", nargs=-1, required=True, shell_complete=complete_targets
)
@selector_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@click.option("--show-events/--no-events", default=True, show_default=True, help="Show what happened to it lately.")
@store_options
def command(
    session: Session, *, words: tuple[str, ...], labels: str, fields: str, all_namespaces: bool, show_events: bool
) -> None:
    """Show one object in full, with its conditions and Events."""
    from quartermaster.cli.describing import describe

    code = session.run(
        lambda: describe(
            session, words, labels=labels, fields=fields, all_namespaces=all_namespaces, show_events=show_events
        )
    )
    if code:
        raise click.exceptions.Exit(code)
