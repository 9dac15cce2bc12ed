"""`qm approve`: steps that destroy something, allowed one by one."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_statuses
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm approve glusterfs-default            show what waits, and ask
  qm approve glusterfs-default --yes      approve what waits now
  qm approve glusterfs-default --list     only show it
"""


@click.command(short_help="Approve steps that destroy something.", epilog=EPILOG)
@click.argument("name", metavar="CLUSTER", shell_complete=complete_statuses)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--list", "only_list", is_flag=True, help="Only show what waits.")
@store_options
def command(session: Session, *, name: str, yes: bool, only_list: bool) -> None:
    """Approve steps that destroy something.

    Steps wait where the StorageCluster has requireApproval. An approval is of exactly the steps that were shown; one
    that changes afterwards waits again.
    """
    from quartermaster.cli.holding import approve

    session.run(lambda: approve(session, name, yes=yes, only_list=only_list))
