"""`qm get`: objects as a table, or in a form for programs."""

from __future__ import annotations

from typing import Any

import click

from quartermaster.cli.completing import complete_targets
from quartermaster.cli.options import output_option, selector_options, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm get storagenodes                          a table
  qm get sn -A -o wide                         of all namespaces, with all columns
  qm get sn storage-node1 -o yaml              one object in full
  qm get sn -l rack=a --field-selector spec.type=glusterfs
  qm get storagenodes,storagestatuses          several kinds
  qm get all                                   every kind of Quartermaster
  qm get sn -o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'
"""


@click.command(short_help="Show objects as a table, YAML, JSON or by JSON path.", epilog=EPILOG)
@click.argument(
    "words", metavar="TYPE [NAME...] | TYPE/NAME...", nargs=-1, required=True, shell_complete=complete_targets
)
@output_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Look in all namespaces.")
@selector_options
@click.option("--sort-by", metavar="PATH", default="", help="Sort by the value at a JSON path: .metadata.name.")
@click.option("--no-headers", is_flag=True, help="Leave out the headers of a table.")
@click.option("--show-labels", is_flag=True, help="Add a column with all labels.")
@click.option("--show-managed-fields", is_flag=True, help="Show who owns which field in YAML and JSON.")
@click.option("--ignore-not-found", is_flag=True, help="It is no error when an object is not there.")
@click.option("-w", "--watch", "watching", is_flag=True, help="Go on and show every change.")
@store_options
def command(session: Session, **options: Any) -> None:
    """Show objects as a table, YAML, JSON or by JSON path.

    The columns are those that the kind declares; `kubectl get` shows the same ones.
    """
    from quartermaster.cli.getting import Request, get

    if code := session.run(lambda: get(session, Request(**options))):
        raise click.exceptions.Exit(code)
