"""`qm cstor conformance`: scenarios that drive a live installation, each command in a file of its own."""

from __future__ import annotations

import click

from quartermaster.cli.root import LazyGroup

COMMANDS: dict[str, str] = {
    "scenarios": "List the scenarios.",
    "serve": "Serve the conformance hook, which runs scenarios.",
    "controller": "Run what is asked for by ConformanceReports.",
    "junit": "Print a report as JUnit XML.",
}

EPILOG = """\b
Examples:
  qm cstor conformance scenarios           what there is to run
  qm cstor conformance controller          run what is asked for, in this process
  qm apply -f report.yaml                  ask for a run: a ConformanceReport
  qm get cscreport -w                      see how far it is
  qm cstor conformance junit nightly       the result, for programs
"""


class ConformanceGroup(LazyGroup):
    table = COMMANDS
    modules = "quartermaster.cli.cstor_conformance_"


@click.group(cls=ConformanceGroup, short_help="Drive a live installation through its workflows.", epilog=EPILOG)
def command() -> None:
    """Drive a live installation through its workflows.

    What to run is declared as a ConformanceReport, and its status tells what came of it. It is an installation of its
    own, beside the core: installing or removing it disturbs nothing.
    """
