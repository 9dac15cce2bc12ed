"""`qm cstor conformance scenarios`: what there is to run."""

from __future__ import annotations

import click

from quartermaster.cli.options import output_option_of

EPILOG = """\b
Examples:
  qm cstor conformance scenarios
  qm cstor conformance scenarios -o json
"""


@click.command(short_help="List the scenarios.", epilog=EPILOG)
@output_option_of(("json", "name"))
def command(*, output: str) -> None:
    """List the scenarios, in the order in which they run.

    Those that break something are for rehearsals only, where nodes, disks and pools are played by stand-ins.
    """
    from quartermaster.cli.cstor_conformance_running import show_scenarios

    show_scenarios(output)
