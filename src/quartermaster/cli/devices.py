"""`qm devices`: the disks of the hosts, and why one cannot be used."""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm devices                   of all hosts, as their agents see them
  qm devices h1                of one host
  qm devices -o wide           with identities and programs' words for the reasons
  qm devices --this-host       look at this machine now; no store and no agent needed
"""


@click.command(short_help="Show the disks of hosts, and why one cannot be used.", epilog=EPILOG)
@click.argument("host", metavar="[HOST]", default="")
@click.option("--this-host", is_flag=True, help="Look at this machine itself, without a store.")
@output_option_of(("wide", "yaml", "json"))
@store_options
def command(session: Session, *, host: str, this_host: bool, output: str) -> None:
    """Show the disks of hosts, and why one cannot be used.

    A disk is used only when it is whole, blank and idle. Nothing here changes a disk.
    """
    from quartermaster.cli.inventories import show_devices

    if this_host and host:
        raise click.UsageError("--this-host is about this machine; leave out HOST")
    session.run(lambda: show_devices(session, host, this_host=this_host, output=output))
