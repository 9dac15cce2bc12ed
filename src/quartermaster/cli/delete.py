"""`qm delete`: objects by name, by selector or by file."""

from __future__ import annotations

from typing import Any

import click

from quartermaster.cli.completing import complete_targets
from quartermaster.cli.options import file_option, seconds_of, selector_options, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm delete storagenode storage-node1
  qm delete sn/storage-node1 sn/storage-node2
  qm delete -f nodes/                          what these files declare
  qm delete sn -l rack=a --dry-run             see first
  qm delete sn --all --yes                     all of the namespace
  qm delete storagecluster a --cascade orphan  keep what it owns
  qm delete host h3                            one that is lost for good
  qm delete pvc data --force                   and its volume, although it is mounted: whoever uses it gets errors
"""


# What kubectl has and nothing here could obey.
_ELSEWHERE = {
    "--grace-period": "objects here have no grace period",
    "--now": "an object is deleted at once, unless a finalizer holds it",
}


class _Command(click.Command):
    """Takes `--wait=true` and `--wait=false`, as kubectl does, and says why some of its options are not here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [self._translate(ctx, word) for word in args[:end]] + args[end:])

    def _translate(self, ctx: click.Context, word: str) -> str:
        option, equals, value = word.partition("=")
        if option in _ELSEWHERE:
            ctx.fail(f"there is no option {option}: {_ELSEWHERE[option]}; leave it out")
        if option != "--wait" or not equals:
            return word
        if value not in ("true", "false"):
            ctx.fail(f'--wait takes true or false, not "{value}"')
        return "--wait" if value == "true" else "--no-wait"


@click.command(cls=_Command, short_help="Delete objects, by name or by file.", epilog=EPILOG)
@click.argument("words", metavar="[TYPE [NAME...] | TYPE/NAME...]", nargs=-1, shell_complete=complete_targets)
@file_option(required=False)
@selector_options
@click.option("--all", "everything", is_flag=True, help="All objects of the kind in the namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With -l or --all: in all namespaces.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --all deletes.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="What becomes of the objects that it owns: deleted after it, deleted before it, or kept.",
)
@click.option("--wait/--no-wait", default=True, help="Wait until the objects are gone.", show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="DURATION",
    type=seconds_of,
    default="60s",
    show_default=True,
    help="How long to wait for each: 30, 2s, 1m.",
)
@click.option("--ignore-not-found", is_flag=True, help="It is no error when an object is not there.")
@click.option(
    "--force",
    is_flag=True,
    help="A Host also while it lives or storage nodes are on it; a claim or volume also while it is used.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@store_options
def command(session: Session, *, words: tuple[str, ...], files: tuple[str, ...], **options: Any) -> None:
    """Delete objects, by name or by file.

    An object with finalizers goes when those who put them there have done their part; the command says what it is held
    by. Finalizers are never taken away here. A Host is refused while it lives: `qm leave`, on that host, takes it out.
    """
    from quartermaster.cli.deleting import Plan, delete

    plan = Plan(words=words, files=files, **options)
    if code := session.run(lambda: delete(session, plan)):
        raise click.exceptions.Exit(code)
