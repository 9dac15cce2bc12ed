"""`qm store`: back up, restore and move everything that a store holds."""

from __future__ import annotations

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm store backup cluster.qmb                    all objects of one moment, Secrets included
  qm store restore cluster.qmb                   into an empty store; nothing acts until `qm resume`
  qm store migrate                               a host alone gets an etcd of its own, so that others can join it
  qm store migrate etcds://10.0.0.1:2379?ca=…    to a store that is there
"""
_BACKUP = click.Path(dir_okay=False)


@click.group(short_help="Back up, restore or move all objects of a store.", epilog=EPILOG)
def command() -> None:
    """Back up, restore or move all objects of a store: the embedded one, or etcd.

    An API server keeps its objects in a store of its own, with a backup of its own.
    """


@command.command(
    "backup",
    short_help="Write all objects to a file.",
    epilog='\b\nExamples:\n  qm store backup cluster.qmb\n  qm store backup "/backups/$(date +%F).qmb"\n',
)
@click.argument("file", metavar="FILE", type=_BACKUP)
@click.option("--replace", is_flag=True, help="Also when the file is there: the new backup takes its place.")
@store_options
def backup(session: Session, *, file: str, replace: bool) -> None:
    """Write all objects, as they are at one moment, to a file that only you can read. It holds all Secrets."""
    from quartermaster.cli.storing import write

    session.run(lambda: write(session, file, replace=replace))


@command.command(
    "restore",
    short_help="Put back what a backup holds; nothing acts on it yet.",
    epilog="\b\nExamples:\n  qm store restore cluster.qmb\n  qm store restore cluster.qmb --replace\n"
    "  qm resume                      when all is as it should be\n",
)
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--replace", is_flag=True, help="Also when the store is not empty: the backup takes its place.")
@store_options
def restore(session: Session, *, file: str, replace: bool) -> None:
    """Put back what a backup holds.

    Afterwards the operator only observes, and shows what differs from what runs, until `qm resume`. Hosts, the members
    of etcd and who leads are facts of now and stay as they are.
    """
    from quartermaster.cli.storing import put_back

    session.run(lambda: put_back(session, file, replace=replace))


@command.command(
    "migrate",
    short_help="Move all objects to another store.",
    epilog="\b\nExamples:\n  qm store migrate\n  qm store migrate sqlite:other.db\n",
)
@click.argument("url", metavar="[URL]", default="")
@click.option("--address", metavar="IP", multiple=True, help="Where etcd is to listen; found by itself unless given.")
@store_options
def migrate(session: Session, *, url: str, address: tuple[str, ...]) -> None:
    """Move all objects to another store, with their identities. The old store stays and acts no more.

    Without a URL this host, which was alone (`qm up --single`), becomes the first of a cluster with an etcd of its
    own: its agent is stopped, the objects are copied, and it is started again on the new store.
    """
    from quartermaster.cli.storing import become_first, copy_to

    session.run(lambda: copy_to(session, url) if url else become_first(session, address))
