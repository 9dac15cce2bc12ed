"""`qm cstor conformance junit`: the result of a run, for programs that show test results."""

from __future__ import annotations

import click

from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm cstor conformance junit nightly > nightly.xml
"""


@click.command(short_help="Print a report as JUnit XML.", epilog=EPILOG)
@click.argument("name", metavar="NAME")
@store_options
def command(session: Session, *, name: str) -> None:
    """Print a ConformanceReport as JUnit XML.

    The exit code is 1 when a scenario failed or the run has not ended yet.
    """
    from quartermaster.cli.cstor_conformance_running import print_junit

    if code := session.run(lambda: print_junit(session, name)):
        raise click.exceptions.Exit(code)
