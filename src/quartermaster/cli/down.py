"""`qm down`: stop what `qm up` started on this host."""

from __future__ import annotations

import click

from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm down                 stop the agent of this host, and its etcd
  qm down; qm up          start them again
"""


@click.command(short_help="Stop what runs on this host; the data stay.", epilog=EPILOG)
@click.pass_obj
def command(session: Session) -> None:
    """Stop the agent of this host and its member of etcd. All data stay, and storage daemons go on serving.

    A host that is not to come back leaves with `qm leave`, so that others do not wait for it.
    """
    from quartermaster.cli.hosting import bring_down

    session.run(bring_down)
