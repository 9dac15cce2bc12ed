"""`qm pause`: nothing more is done to a storage cluster until it is resumed."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_statuses
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm pause glusterfs-default                          one cluster
  qm pause --all --reason "switch is replaced"    all of the namespace
"""


@click.command(short_help="Stop all action on storage clusters.", epilog=EPILOG)
@click.argument("names", metavar="[CLUSTER...]", nargs=-1, shell_complete=complete_statuses)
@click.option("--all", "everything", is_flag=True, help="All clusters of the namespace.")
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever finds it paused.")
@store_options
def command(session: Session, *, names: tuple[str, ...], everything: bool, reason: str) -> None:
    """Stop all action on storage clusters.

    Volumes that are there go on working, and the status still shows what is; but nothing is deployed, changed or
    removed, and no volume is made, until `qm resume`.
    """
    from quartermaster.cli.holding import pause

    session.run(lambda: pause(session, names, everything=everything, reason=reason))
