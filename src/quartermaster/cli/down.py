"""`qm down`: stop what `qm up` started on this host."""

from __future__ import annotations

import click

from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm down                 stop the agent of this host, and its etcd
  qm down; qm up          start them again
  qm down --force         also when the other hosts lose their store by it
"""


@click.command(short_help="Stop what runs on this host; the data stay.", epilog=EPILOG)
@click.option("--force", is_flag=True, help="Stop etcd also when too few members are left to go on.")
@click.pass_obj
def command(session: Session, *, force: bool) -> None:
    """Stop the agent of this host and its member of etcd. All data stay, and storage daemons go on serving.

    It is refused, with the numbers, where the members of etcd that are left would be no majority and other hosts need
    them. A host that is not to come back leaves with `qm leave`, so that others do not wait for it.
    """
    from quartermaster.cli.hosting import bring_down

    session.run(lambda: bring_down(force=force))
