"""`qm leave`: take this host out of its cluster."""

from __future__ import annotations

import click

from quartermaster.cli.options import seconds_of
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm leave                 when nothing is stored on this host any more
  qm leave --timeout 30m   where its member of etcd takes long to move
  qm leave --cancel        it stays after all
  qm leave --keep          what it has of the store's backups stays on it, Secrets included
"""


@click.command(short_help="Take this host out of its cluster.", epilog=EPILOG)
@click.option(
    "--timeout", metavar="DURATION", type=seconds_of, default="5m", show_default=True, help="How long to wait."
)
@click.option("--keep", is_flag=True, help="Do not remove backups of the store, and data of former members of etcd.")
@click.option("--cancel", is_flag=True, help="Take back an earlier `qm leave` that has not ended.")
@click.pass_obj
def command(session: Session, *, timeout: float, keep: bool, cancel: bool) -> None:
    """Take this host out of its cluster.

    It is refused, with the reasons, while storage nodes or services are on the host, when it is the last one, and when
    etcd cannot do without it. Else its member of etcd moves to another host, its agent stops, and its certificates
    open nothing any more. Backups of the store that it wrote as a leader, and what a former member of etcd left, are
    removed: they hold all Secrets of the cluster. To come back it needs a new token.
    """
    from quartermaster.cli.joining import leave_cluster

    session.run(lambda: leave_cluster(timeout_s=timeout, keep=keep, cancel=cancel))
