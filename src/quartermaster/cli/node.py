"""`qm node`: storage nodes that are to be out of service for a while, or for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from quartermaster.cli.completing import complete_nodes
from quartermaster.cli.options import seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm node maintenance storage-node1          its daemons may be stopped; no data move
  qm node maintenance storage-node1 --end    back to work
  qm node drain storage-node1                move its data away; the node stays declared
  qm node remove storage-node1               drain it, then delete it
  qm node remove storage-node1 --lost        its host is gone for good

Each of them shows how far it is. Ctrl-C ends only the looking; --cancel takes it back.
"""
Command = TypeVar("Command", bound=Callable[..., Any])


def waiting_options(function: Command) -> Command:
    function = click.option(
        "--timeout", metavar="DURATION", type=seconds_of, default="1h", show_default=True, help="How long to wait."
    )(function)
    return click.option("--wait/--no-wait", default=True, help="Wait until it is done, and show how far it is.")(
        function
    )


name_argument = click.argument("name", metavar="NODE", shell_complete=complete_nodes)


@click.group(short_help="Take storage nodes out of service, or out of the cluster.", epilog=EPILOG)
def command() -> None:
    """Take storage nodes out of service, or out of the cluster."""


@command.command(
    "maintenance",
    short_help="Take a node out of service for a while.",
    epilog="\b\nExamples:\n  qm node maintenance n1\n  qm node maintenance n1 --reason 'new fan'\n"
    "  qm node maintenance n1 --end\n",
)
@name_argument
@click.option("--end", is_flag=True, help="Back to work.")
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever finds it so.")
@waiting_options
@store_options
def maintenance(session: Session, *, name: str, end: bool, reason: str, wait: bool, timeout: float) -> None:
    """Take a node out of service for a while: it takes no new volumes, its daemons may be stopped, its data stay."""
    from quartermaster.cli.nodes import Wish, keep_out

    session.run(lambda: keep_out(session, name, end=end, reason=reason, wish=Wish(wait=wait, timeout_s=timeout)))


@command.command(
    "drain",
    short_help="Move the data of a node away.",
    epilog="\b\nExamples:\n  qm node drain n1\n  qm node drain n1 --no-wait\n  qm node drain n1 --cancel\n",
)
@name_argument
@click.option("--cancel", is_flag=True, help="Take it back: the node serves again.")
@waiting_options
@store_options
def drain(session: Session, *, name: str, cancel: bool, wait: bool, timeout: float) -> None:
    """Move the data of a node away, and take its service off its host. The node stays declared.

    It is refused where the other nodes have no room for what is in use. What cannot move is named.
    """
    from quartermaster.cli.nodes import Wish, drain_node

    session.run(lambda: drain_node(session, name, cancel=cancel, wish=Wish(wait=wait, timeout_s=timeout)))


@command.command(
    "remove",
    short_help="Drain a node, then delete it.",
    epilog="\b\nExamples:\n  qm node remove n1\n  qm node remove n1 --cancel     while it is being drained\n"
    "  qm node remove n1 --lost       its host is gone for good, with all that was on it\n",
)
@name_argument
@click.option("--cancel", is_flag=True, help="Take it back, as long as the node is not deleted.")
@click.option("--lost", is_flag=True, help="Its host is gone for good: give up what was on it, and drain nothing.")
@click.option("-y", "--yes", is_flag=True, help="With --lost: do not ask.")
@waiting_options
@store_options
def remove(session: Session, *, name: str, cancel: bool, lost: bool, yes: bool, wait: bool, timeout: float) -> None:
    """Drain a node, then delete it.

    Nothing is deleted before the node is empty, so that it can be taken back until then.

    A node whose host is gone for good cannot be drained. --lost says which volumes are lost with it, asks, and removes
    it at once. It is refused while the host lives, and cannot be taken back. Should the host come back all the same, it
    is told to clear away what it runs; its disks keep what is on them.
    """
    from quartermaster.cli.nodes import Wish, drain_node, remove_lost, remove_node

    wish = Wish(wait=wait, timeout_s=timeout)
    if cancel:
        session.run(lambda: drain_node(session, name, cancel=True, wish=wish))
    elif lost:
        session.run(lambda: remove_lost(session, name, yes=yes, wish=wish))
    else:
        session.run(lambda: remove_node(session, name, wish=wish))
