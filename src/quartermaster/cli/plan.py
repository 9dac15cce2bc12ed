"""`qm plan`: what would be decided about a declaration, and why; nothing is written.

Each kind that can be planned has a planner in a file of its own, which is imported when such a document is given.
"""

from __future__ import annotations

import click

from quartermaster.cli.options import FileCommand, file_option, output_option_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm plan                             what the leader would do to the storage clusters now
  qm plan -f storage-node.yaml        and with these nodes or settings in place of those in the store
  qm plan -f config.yaml              what the declaration would lead to now
  qm plan -f config.yaml -o json      for programs
  qm plan -f config.yaml -f nodes/    with these objects in the place of those in the store
"""


@click.command(cls=FileCommand, short_help="Show what the leader would do, and why.", epilog=EPILOG)
@file_option(required=False)
@output_option_of(("wide", "json", "yaml"))
@store_options
def command(session: Session, *, files: tuple[str, ...], output: str) -> None:
    """Show what the leader would do, and why. Nothing is written.

    Without files it is about the storage clusters of the namespace as they are.
    Objects in the files take the place of those in the store, so one can see what a new label, a new disk or another
    number would change.
    """
    from quartermaster.cli.planning import plan_files

    if code := session.run(lambda: plan_files(session, files, output)):
        raise click.exceptions.Exit(code)
