"""How an error ends: one message on standard error and an exit code. A traceback only for our own mistakes.

0    done
1    the store or the objects said no (not found, conflict, invalid, unavailable …); `qm diff`: there are differences
2    the command line was wrong; `qm diff`: it could not be told
70   a mistake of this program; the traceback is shown with -v, and a report is welcome
130  interrupted
"""

from __future__ import annotations

import errno
import os
import sys

import click

from quartermaster.support.errors import ApplyConflictError, InvalidError, QuartermasterError, UsageError
from quartermaster.support.redaction import redact

FAILED = 1
WRONG_USE = 2
OUR_MISTAKE = 70
INTERRUPTED = 130


def report(error: BaseException) -> int:
    """Tell the person, and return the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, QuartermasterError):
        say(sentence(error))
        return exit_code(type(error))
    return _of_the_system(error) if isinstance(error, OSError) else _our_mistake(error)


def _of_the_system(error: OSError) -> int:
    full = "; make room, `qm doctor` shows where" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    if error.filename:
        say(f"cannot use {error.filename}: {error.strerror}{full}")
        return FAILED
    if not _is_of_output(error):
        return _our_mistake(error)
    if isinstance(error, BrokenPipeError):
        return 0  # who reads it has seen enough
    say(f"cannot write the output: {error.strerror}")
    return FAILED


def exit_code(kind: type[QuartermasterError]) -> int:
    """What a command ends with that meets such an error; the reference page says the same."""
    return WRONG_USE if issubclass(kind, UsageError) else FAILED


def sentence(error: QuartermasterError) -> str:
    """The error as a person at the command line needs it."""
    if isinstance(error, ApplyConflictError) and error.conflicts:
        fields = "".join(f"\n  {conflict.path}: owned by {conflict.manager}" for conflict in error.conflicts)
        what = error.message.partition(":")[0]
        return (
            f"{what}: other managers own fields that it would change{fields}\n"
            "leave these fields out, give them the same value, or take them over with --force-conflicts"
        )
    if isinstance(error, InvalidError) and error.problems and error.hint:
        return f"{error}\n{error.hint}"
    return str(error)


def say(text: str) -> None:
    click.echo(click.style("error:", fg="red", bold=True) + f" {redact(text)}", err=True, color=colour())


class Sentences:
    """Lines of the log, for a person who has not asked for the log: pass it to `log.told_by`."""

    def warning(self, message: str, *, error: object = "", **values: object) -> None:
        told = {name: redact(value, key=name) for name, value in values.items() if name not in ("room", "exc_info")}
        known = ", ".join(f"{name} {value}" for name, value in told.items())
        text = f"{message} ({known})" if known else message
        whole = redact(f"{text}: {error}" if error else text)
        click.echo(click.style("warning:", fg="yellow") + f" {whole}", err=True, color=colour())

    error = warning


def colour() -> bool | None:
    """False where nobody wants colours; None leaves it to whether there is a terminal.

    Asked for here again and not only kept in click's context, which is gone when an error is reported.
    """
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _is_of_output(error: OSError) -> bool:
    """Whether printing failed. What waits to be printed is dropped then: the end of the program would try it again."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or place.tb_frame.f_code is not click.echo.__code__:
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _our_mistake(error: BaseException) -> int:
    if any(argument.startswith("-v") or argument == "--verbose" for argument in sys.argv):
        import traceback

        traceback.print_exception(error)
    say(f"this is a mistake in quartermaster: {type(error).__name__}: {error}; run it again with -v and report it")
    return OUR_MISTAKE
