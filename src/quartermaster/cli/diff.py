"""`qm diff`: what an apply would change."""

from __future__ import annotations

import click

from quartermaster.cli.options import FileCommand, file_option, store_options
from quartermaster.cli.session import MANAGER, Session

EPILOG = """\b
Examples:
  qm diff -f storage-node.yaml
  qm diff -f nodes/ && echo "nothing to do"
  generate-nodes | qm diff -f -
"""


@click.command(cls=FileCommand, short_help="Show what an apply would change.", epilog=EPILOG)
@file_option(required=True)
@click.option("--force-conflicts", is_flag=True, help="As if fields that other managers own were taken over.")
@click.option("--field-manager", metavar="NAME", default=MANAGER, show_default=True, help="Who would own the fields.")
@store_options
def command(session: Session, *, files: tuple[str, ...], force_conflicts: bool, field_manager: str) -> None:
    """Show what an apply would change.

    The store applies the files without writing, and the result is compared with what is there. Exit code: 0 when there
    is no difference, 1 when there is one, more when it could not be told.
    """
    from quartermaster.cli import failures
    from quartermaster.cli.comparing import compare
    from quartermaster.cli.given import read_given
    from quartermaster.support.errors import QuartermasterError

    try:
        manifests = read_given(files)
        code = session.run(lambda: compare(session, manifests, manager=field_manager, force=force_conflicts))
    except QuartermasterError as error:
        code = max(failures.WRONG_USE, failures.report(error))
    raise click.exceptions.Exit(code)
