"""`qm status`: how the storage clusters are, and what they wait for."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_statuses
from quartermaster.cli.options import output_option_of, seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm status                          all clusters and their nodes; on a terminal until they are ONLINE
  qm status glusterfs-default            one cluster
  qm status --wait --timeout 5m      wait until they are ONLINE, for at most five minutes
  qm status -o json                  for programs

The exit code is 0 when all of them are ONLINE, and 1 when one is not, nothing is declared, or a node is of a type
that nothing serves. Where nobody leads what is shown is old, and it says so; --wait waits for a leader, and who names a
cluster waits for its declaration too.
"""
FORMS = ("yaml", "json")


@click.command(short_help="Show how the storage clusters are, until they are ONLINE.", epilog=EPILOG)
@click.argument("names", metavar="[CLUSTER...]", nargs=-1, shell_complete=complete_statuses)
@output_option_of(FORMS)
@click.option("--wait/--no-wait", default=None, help="Go on until they are ONLINE; on a terminal that is the default.")
@click.option(
    "--timeout", metavar="DURATION", type=seconds_of, default="10m", show_default=True, help="How long to wait."
)
@store_options
def command(session: Session, *, names: tuple[str, ...], output: str, wait: bool | None, timeout: float) -> None:
    """Show how the storage clusters are, until they are ONLINE.

    A cluster is named by its StorageStatus (glusterfs-default) or by its own name. Nodes that are not ready come
    first, with what they wait for. Ctrl-C ends only the looking: the work goes on by itself.
    """
    from quartermaster.cli.statuses import Look, show_status

    look = Look(names=names, output=output, wait=wait, timeout_s=timeout)
    if code := session.run(lambda: show_status(session, look)):
        raise click.exceptions.Exit(code)
