"""How an error ends: one message on standard error and an exit code. A traceback only for our own mistakes.

    1    the store or the objects said no (not found, conflict, invalid, unavailable …)
    2    the command line was wrong
    3    `qm diff` found differences (not an error)
    70   a mistake of this program; the traceback is shown with -v, and a report is welcome
    130  interrupted
"""

from __future__ import annotations

import sys

import click

from quartermaster.support.errors import QuartermasterError, UsageError
from quartermaster.support.redaction import redact

FAILED = 1
WRONG_USE = 2
DIFFERENT = 3
OUR_MISTAKE = 70
INTERRUPTED = 130


def report(error: Exception) -> int:
    """Tell the person, and return the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        # The reader (head, less) has seen enough. Standard output is closed so that the exit does not complain.
        sys.stderr.close()
        return 0
    if isinstance(error, QuartermasterError):
        _say(str(error))
        return WRONG_USE if isinstance(error, UsageError) else FAILED
    if isinstance(error, OSError) and error.filename:
        _say(f"cannot use {error.filename}: {error.strerror}")
        return FAILED
    return _our_mistake(error)


def _say(text: str) -> None:
    click.echo(click.style("error:", fg="red", bold=True) + f" {redact(text)}", err=True)


def _our_mistake(error: Exception) -> int:
    if any(argument in ("-v", "-vv", "--verbose") for argument in sys.argv):
        import traceback

        traceback.print_exception(error)
    _say(f"this is a mistake in quartermaster: {type(error).__name__}: {error}; run it again with -v and report it")
    return OUR_MISTAKE
