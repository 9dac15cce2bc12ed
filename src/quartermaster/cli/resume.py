"""`qm resume`: what was paused goes on, and so does an operator that only observes after a restore."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_statuses
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm resume glusterfs-default      a cluster that was paused
  qm resume --all              all of the namespace
  qm resume                    after `qm store restore`: from observing to acting
"""


@click.command(short_help="Let paused storage clusters go on.", epilog=EPILOG)
@click.argument("names", metavar="[CLUSTER...]", nargs=-1, shell_complete=complete_statuses)
@click.option("--all", "everything", is_flag=True, help="All clusters of the namespace.")
@store_options
def command(session: Session, *, names: tuple[str, ...], everything: bool) -> None:
    """Let paused storage clusters go on.

    Without a cluster it ends the time after a restore in which the operator only observes; look at `qm plan` first,
    which shows what it would do. It ends with 1 where a cluster is still paused then, and names it.
    """
    from quartermaster.cli.holding import resume

    if code := session.run(lambda: resume(session, names, everything=everything)):
        raise click.exceptions.Exit(code)
