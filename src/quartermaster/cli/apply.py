"""`qm apply`: create or change objects from files."""

from __future__ import annotations

import click

from quartermaster.cli.options import FileCommand, file_option, store_options
from quartermaster.cli.session import MANAGER, Session

EPILOG = """\b
Examples:
  qm apply -f storage-node.yaml             create it, or change what differs
  qm apply -f nodes/ -f clusters/           directories with all below them
  generate-nodes | qm apply -f -            standard input
  qm apply -f nodes/ --dry-run              what would happen
  qm apply -f node.yaml --force-conflicts   take over fields that others own
"""


@click.command(cls=FileCommand, short_help="Create or change objects from files.", epilog=EPILOG)
@file_option(required=True)
@click.option("--dry-run", is_flag=True, help="Say what would happen, and write nothing.")
@click.option("--force-conflicts", is_flag=True, help="Take over fields that other managers own.")
@click.option("--field-manager", metavar="NAME", default=MANAGER, show_default=True, help="Who owns the fields.")
@store_options
def command(
    session: Session, *, files: tuple[str, ...], dry_run: bool, force_conflicts: bool, field_manager: str
) -> None:
    """Create or change objects from files.

    All files are checked before the first object is written. The fields in the files become yours; fields of others
    stay as they are, and one that somebody else owns with another value is a conflict. Running the same command again
    changes nothing, and completes what was interrupted.
    """
    from quartermaster.cli.applying import Plan, apply
    from quartermaster.cli.given import read_given

    manifests = read_given(files)
    plan = Plan(dry_run=dry_run, force=force_conflicts, manager=field_manager)
    if code := session.run(lambda: apply(session, manifests, plan)):
        raise click.exceptions.Exit(code)
