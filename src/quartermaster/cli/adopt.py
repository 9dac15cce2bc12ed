"""`qm adopt`: what runs on hosts and is in no store is written into one."""

from __future__ import annotations

import click

from quartermaster.cli.options import seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm adopt glusterfs                     show what is found, and what would be written
  qm adopt glusterfs --yes               write it
  qm adopt glusterfs --cluster old       what to call a pool that was made by hand
  qm adopt glusterfs --lost 10.0.0.7     a peer that is gone for good: its bricks are made anew on others

Without --yes nothing is written. Every host of the pool has to have joined before (`qm up`, `qm join`).
"""


@click.command(short_help="Write down a storage cluster that runs and is in no store.", epilog=EPILOG)
@click.argument("type_", metavar="TYPE")
@click.option("--cluster", metavar="NAME", default="", help="The name of a cluster whose bricks do not say it.")
@click.option("--lost", metavar="PEER", multiple=True, help="A peer of the pool that will not come back; repeatable.")
@click.option("-y", "--yes", is_flag=True, help="Write what was found.")
@click.option(
    "--timeout",
    metavar="DURATION",
    type=seconds_of,
    default="1m",
    show_default=True,
    help="How long to wait for hosts.",
)
@store_options
def command(session: Session, *, type_: str, cluster: str, lost: tuple[str, ...], yes: bool, timeout: float) -> None:
    """Write down a storage cluster that runs and is in no store.

    For when the store was lost, or a pool was made by hand. Every host is asked what runs there and whose bricks lie
    on its disks; from that come StorageNodes, PersistentVolumes and claims. Objects that are there already stay as
    they are. Nothing is formatted, stopped or moved.
    """
    from quartermaster.cli.adopting import Wish, adopt_cluster

    wish = Wish(type=type_, cluster=cluster, lost=lost, write=yes, timeout_s=timeout)
    session.run(lambda: adopt_cluster(session, wish))
