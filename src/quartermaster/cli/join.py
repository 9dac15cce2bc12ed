"""`qm join`: this host becomes one of a cluster."""

from __future__ import annotations

import sys

import click

from quartermaster.cli.offering import Offer, offer_options
from quartermaster.cli.options import seconds_of, store_options
from quartermaster.cli.session import Session

_FROM_INPUT = "-"
EPILOG = """\b
Examples:
  qm join qm1-eyJ…                                   with a token of `qm token create` on another host
  qm join qm1-eyJ… --all-devices --label rack=7      offering its blank disks
  echo "$TOKEN" | qm join -                          the token stays out of the list of processes
"""


@click.command(short_help="Make this host one of a cluster.", epilog=EPILOG)
@click.argument("token", metavar="TOKEN")
@offer_options
@click.option("--foreground", is_flag=True, help="Stay, and end with Ctrl-C.")
@click.option("--context", "context_name", metavar="NAME", default="", help="Save the store under this name.")
@click.option("--debounce", metavar="SECONDS", type=click.FloatRange(0, 3600), help="Wait so long to merge changes.")
@click.option("--timeout", metavar="DURATION", type=seconds_of, default="60s", help="How long to wait until it works.")
@store_options
def command(
    session: Session,
    *,
    token: str,
    offer: Offer,
    foreground: bool,
    context_name: str,
    debounce: float | None,
    timeout: float,
) -> None:
    """Make this host one of a cluster, and return when it works. `-` reads the token from standard input.

    The token says where the leader is and how to know it. The host makes a key, has a certificate signed for it, and
    starts its agent. Interrupted, the same command goes on where it was; a token works for one host only.
    """
    from quartermaster.cli.hosting import Wanted
    from quartermaster.cli.joining import join_cluster

    wanted = Wanted(foreground=foreground, context=context_name, debounce_s=debounce, timeout_s=timeout)
    text = sys.stdin.readline() if token == _FROM_INPUT else token
    session.run(lambda: join_cluster(session, text, offer, wanted))
