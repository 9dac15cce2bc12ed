"""`qm agent`: what runs on every host."""

from __future__ import annotations

import click

from quartermaster.cli.offering import Offer, offer_options
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm agent                                       the agent of a host that was brought up or has joined
  qm agent -v                                    the same, saying what it does
  qm agent --store kubernetes:lab --name h1      on an API server, as the host h1
  qm agent --listen 127.0.0.1:9101               with health and metrics over HTTP
"""


@click.command(short_help="Run the agent of this host.", epilog=EPILOG)
@offer_options
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics there.")
@store_options
def command(session: Session, *, offer: Offer, listen: str) -> None:
    """Run the agent of this host, in the foreground, until it is interrupted.

    It registers the host, gives signs of life, keeps the inventory of disks up to date, and does what the leader
    assigns to it. Daemons that it starts go on when it ends. `qm up` and `qm join` start it in the background; without
    options it is what they made it.
    """
    from quartermaster.cli.hosting import run_agent

    session.run(lambda: run_agent(session, offer, listen))
