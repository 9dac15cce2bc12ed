"""`qm token`: what a host needs to join."""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of, seconds_of, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm token create                    one for the next host, good for an hour
  qm token create --host h3          for a host that takes the place of one of that name
  qm token list                      those that are there, and who has used them
  qm token revoke bcdfghjk           one that is not to be used any more
"""
FORMS = ("wide", "yaml", "json")


@click.group(short_help="Make, list and revoke tokens with which hosts join.", epilog=EPILOG)
def command() -> None:
    """Make, list and revoke tokens with which hosts join.

    A token works once and for a while. It is a secret until then: who has it can become a host of the cluster. What
    is kept of it is a hash.
    """


@command.command(
    "create",
    short_help="Make a token for the next host.",
    epilog="""\b
Examples:
  qm token create
  qm token create --expires 15m
  qm token create --host h3
  qm join "$(ssh h1 qm token create)"
""",
)
@click.option(
    "--expires", metavar="DURATION", type=seconds_of, default="1h", show_default=True, help="How long it is good."
)
@click.option("--host", metavar="NAME", default="", help="Only for a host of this name, which may be there already.")
@store_options
def create(session: Session, *, expires: float, host: str) -> None:
    """Make a token, and print it.

    A token for any host lets in a new one only. To replace a host that is there, under its name, name it.
    """
    from quartermaster.cli.tokens import create_and_show

    session.run(lambda: create_and_show(session, lifetime_s=expires, host=host))


@command.command(
    "list",
    short_help="List tokens, and who has used them.",
    epilog="\b\nExamples:\n  qm token list\n  qm token list -o json\n",
)
@output_option_of(FORMS)
@store_options
def list_tokens(session: Session, *, output: str) -> None:
    """List tokens, and who has used them. The tokens themselves cannot be shown again."""
    from quartermaster.cli.tokens import show_tokens

    session.run(lambda: show_tokens(session, output))


@command.command("revoke", short_help="Make a token useless.", epilog="\b\nExamples:\n  qm token revoke bcdfghjk\n")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@store_options
def revoke(session: Session, *, ids: tuple[str, ...]) -> None:
    """Make tokens useless. A host that has joined with one stays."""
    from quartermaster.cli.tokens import revoke_all

    session.run(lambda: revoke_all(session, ids))
