"""Options that several commands have, declared once, without importing what the commands need to run."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quartermaster.cli.completing import complete_namespaces, complete_outputs
from quartermaster.support.errors import UsageError

if TYPE_CHECKING:
    from quartermaster.cli.session import Session

T = TypeVar("T")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_LONGEST_S = 86400.0
Command = TypeVar("Command", bound=Callable[..., Any])
FORMS = ("wide", "yaml", "json", "name", "jsonpath=TEMPLATE")


def store_options(function: Callable[..., T]) -> Callable[..., T]:
    """`--store`, `-n` and `-v` after the command as well as before it. The command receives `session`."""

    @click.option("--store", "store_url", metavar="URL", help="The store to use; see `qm --help`.")
    @click.option("-n", "--namespace", metavar="NAME", help="The namespace.", shell_complete=complete_namespaces)
    @click.option("-v", "--verbose", count=True, help="More on standard error; twice for all of it.")
    @click.pass_obj
    @functools.wraps(function)
    def wrapped(
        session: Session, /, *, store_url: str | None, namespace: str | None, verbose: int, **options: Any
    ) -> T:
        session.override(store_url=store_url, namespace=namespace, verbosity=verbose)
        return function(session, **options)

    return wrapped


def seconds_of(text: str) -> float:
    """30, 2s, 1m or 1h30m, as the type of an option."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise click.BadParameter(f'"{text}" is not a duration; for example 30, 2s or 1m')
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total > _LONGEST_S:
        raise click.BadParameter(f'"{text}" is more than a day')
    return total


def output_option(function: Command) -> Command:
    return output_option_of(FORMS)(function)


def output_option_of(forms: Sequence[str]) -> Callable[[Command], Command]:
    """`-o` of a command that has fewer forms."""
    sentence = f"{', '.join(forms[:-1])} or {forms[-1]}." if len(forms) > 1 else f"{forms[0]}."

    def check(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
        if value and value.partition("=")[0] not in (form.partition("=")[0] for form in forms):
            raise UsageError(f'cannot print as "{value}"', hint=f"-o takes {', '.join(forms)}")
        return value

    complete = complete_outputs(forms)
    return click.option(
        "-o", "--output", metavar="FORM", default="", help=sentence, shell_complete=complete, callback=check
    )


def selector_options(function: Command) -> Command:
    function = click.option(
        "--field-selector", "fields", metavar="FIELDS", default="", help='By field: "spec.type=glusterfs".'
    )(function)
    return click.option(
        "-l", "--selector", "labels", metavar="LABELS", default="", help='By label: "a=b,c in (d,e),!f".'
    )(function)


class FileCommand(click.Command):
    """A command whose files are given with -f; who leaves that out is told so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except click.MissingParameter:
            _, files, _ = self.make_parser(ctx).parse_args(list(args))
            if not files or ctx.resilient_parsing:
                raise
            ctx.fail(f"files are given with -f: {ctx.command_path} -f {files[0]}")


def file_option(*, required: bool) -> Callable[[Command], Command]:
    return click.option(
        "-f",
        "--filename",
        "files",
        metavar="FILE|DIR|-",
        multiple=True,
        required=required,
        type=click.Path(allow_dash=True),
        help="A file, a directory with all below it, or - for standard input; may be repeated.",
    )
