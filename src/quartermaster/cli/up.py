"""`qm up`: from nothing to a cluster, on this host."""

from __future__ import annotations

import click

from quartermaster.cli.offering import Offer, offer_options
from quartermaster.cli.options import seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm up --single                        this host alone: no server, no root
  qm up                                 the first host of a cluster, with an etcd of its own
  qm up --all-devices --label rack=7    offering its blank disks
  qm token create                       then, for the next host:  qm join TOKEN
  qm down                               stop what this started; the data stay
"""


@click.command(short_help="Bring up Quartermaster on this host.", epilog=EPILOG)
@click.option("--single", is_flag=True, help="This host alone, on the embedded store.")
@offer_options
@click.option("--foreground", is_flag=True, help="Stay, and end with Ctrl-C.")
@click.option("--context", "context_name", metavar="NAME", default="", help="Save the store under this name.")
@click.option("--debounce", metavar="SECONDS", type=click.FloatRange(0, 3600), help="Wait so long to merge changes.")
@click.option("--timeout", metavar="DURATION", type=seconds_of, default="60s", help="How long to wait until it works.")
@store_options
def command(
    session: Session,
    *,
    single: bool,
    offer: Offer,
    foreground: bool,
    context_name: str,
    debounce: float | None,
    timeout: float,
) -> None:
    """Bring up Quartermaster on this host, and return when it works.

    With --single one process is everything, on the embedded store: it needs no root and no server, and offers a
    directory for volumes by itself. Without it, this host is the first of a cluster: it runs etcd, and others join it.

    The store is saved as the current context, so that later commands use it. Running it again is harmless: it starts
    what does not run, and changes what is given otherwise. Disks and directories that a StorageNode names are changed
    there, with `qm edit storagenode`. After an upgrade of the program it starts the agent anew; etcd and the daemons
    of storage systems go on running.
    """
    from quartermaster.cli.hosting import Wanted, bring_up

    wanted = Wanted(single=single, foreground=foreground, context=context_name, debounce_s=debounce, timeout_s=timeout)
    session.run(lambda: bring_up(session, offer, wanted))
