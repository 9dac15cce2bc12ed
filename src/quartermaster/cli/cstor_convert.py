"""`qm cstor convert`: the CStorClusterConfig for an old CSPCAuto."""

from __future__ import annotations

import click

EPILOG = """\b
Examples:
  qm cstor convert cspcauto.yaml                      print it
  qm cstor convert cspcauto.yaml | qm plan -f -       what it would do
  qm cstor convert cspcauto.yaml | qm apply -f -      declare it
"""


@click.command(short_help="Print the CStorClusterConfig for an old CSPCAuto.", epilog=EPILOG)
@click.argument("file", metavar="FILE", type=str)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="The form."
)
def command(file: str, output: str) -> None:
    """Print the CStorClusterConfig for an old CSPCAuto; "-" reads standard input.

    What the old kind could say and the new one cannot is told on standard error.
    """
    from quartermaster.cli.cstor_converting import convert_file

    convert_file(file, output)
