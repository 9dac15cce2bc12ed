"""`qm watch`: changes as they happen."""

from __future__ import annotations

import click

from quartermaster.cli.completing import complete_targets
from quartermaster.cli.options import output_option, selector_options, store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm watch storagenodes                   what is there, then every change
  qm watch storagestatus glusterfs-a      one object
  qm watch sn -A -l rack=a -o wide
  qm watch sn -o json | jq .type          one JSON document per line
"""


@click.command(short_help="Show changes as they happen.", epilog=EPILOG)
@click.argument("words", metavar="TYPE [NAME] | TYPE/NAME", nargs=-1, required=True, shell_complete=complete_targets)
@output_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Watch all namespaces.")
@selector_options
@click.option("--no-headers", is_flag=True, help="Leave out the headers of a table.")
@click.option("--show-labels", is_flag=True, help="Add a column with all labels.")
@click.option("--show-managed-fields", is_flag=True, help="Show who owns which field in YAML and JSON.")
@store_options
def command(
    session: Session,
    *,
    words: tuple[str, ...],
    output: str,
    all_namespaces: bool,
    labels: str,
    fields: str,
    no_headers: bool,
    show_labels: bool,
    show_managed_fields: bool,
) -> None:
    """Show changes as they happen.

    What is there comes first, as ADDED. A connection that breaks is made again and nothing is missed; Ctrl-C ends it.
    """
    from quartermaster.cli.arguments import parse_targets
    from quartermaster.cli.finding import Query
    from quartermaster.cli.output import parse_output
    from quartermaster.cli.watching import Style, show_changes

    style = Style(parse_output(output), show_labels, show_managed_fields, not no_headers, events=True)
    targets = parse_targets(words)

    async def watch() -> None:
        async with session.store() as store:
            namespace = None if all_namespaces else session.namespace(store)
            await show_changes(store, targets, Query(namespace, labels, fields), style)

    session.run(watch)
