"""`qm operator`: what decides, as a process of its own."""

from __future__ import annotations

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm operator --store kubernetes:lab                 serve a namespace of an API server
  qm operator -n storage --type glusterfs            one storage system only
  qm operator --debounce 0 -v                        answer every change at once, and say so
"""


@click.command(short_help="Run the operator, which leads or waits to lead.", epilog=EPILOG)
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Serve only this storage system; may be repeated.")
@click.option("--listen", metavar="HOST:PORT", default="", help="Serve /healthz, /readyz and /metrics there.")
@click.option("--debounce", metavar="SECONDS", type=click.FloatRange(0, 3600), help="Wait so long to merge changes.")
@store_options
def command(session: Session, *, types: tuple[str, ...], listen: str, debounce: float | None) -> None:
    """Run the operator, in the foreground, until it is interrupted.

    Several may run: one of them leads, the others wait. Where `qm up` brought up the cluster, the agents' own processes
    lead, and no operator is needed.
    """
    from quartermaster.cli.hosting import run_operator

    session.run(lambda: run_operator(session, types, listen, debounce), resident=True)
