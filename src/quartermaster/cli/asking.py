"""A question before something is lost. Where nobody can answer it, that is a mistake in the command line."""

from __future__ import annotations

import signal
import sys

import click

from quartermaster.support.errors import UsageError


def ask(question: str) -> None:
    """Return if the answer is yes. UsageError where there is neither a terminal nor an answer on standard input."""
    if not confirmed(question):
        raise click.Abort


def confirmed(question: str) -> bool:
    nobody = UsageError("cannot ask: there is no terminal, and no answer on standard input", hint="say --yes")
    if sys.stdin is None:
        raise nobody
    # While a command runs, Ctrl-C cancels it at its next wait; one that reads an answer is at none.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise nobody from None
    finally:
        signal.signal(signal.SIGINT, before)
