"""What `qm get` does, apart from its options, so that `qm get --help` imports none of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from quartermaster.cli import failures
from quartermaster.cli.arguments import Targets, parse_targets
from quartermaster.cli.finding import Group, Query, find_groups
from quartermaster.cli.output import (
    Output,
    as_document,
    as_list,
    format_document,
    names_of,
    nothing_found,
    parse_output,
)
from quartermaster.cli.session import Session
from quartermaster.cli.tables import Columns, Writer
from quartermaster.resources import kind_of
from quartermaster.support.errors import UsageError


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    words: tuple[str, ...]
    output: str = ""
    all_namespaces: bool = False
    labels: str = ""
    fields: str = ""
    sort_by: str = ""
    no_headers: bool = False
    show_labels: bool = False
    show_managed_fields: bool = False
    ignore_not_found: bool = False
    watching: bool = False


async def get(session: Session, request: Request) -> int:
    output = parse_output(request.output)
    targets = parse_targets(request.words)
    async with session.store(reads_only=not request.watching) as store:
        namespace = None if request.all_namespaces else session.namespace(store)
        query = Query(namespace, request.labels, request.fields)
        if request.watching:
            from quartermaster.cli.watching import Style, show_changes

            style = Style(output, request.show_labels, request.show_managed_fields, not request.no_headers)
            await show_changes(store, targets, query, style)
            return 0
        groups = await find_groups(store, targets, query)
    if request.sort_by:
        _sort(groups, request.sort_by)
    _show(groups, targets, query, output, request)
    missing = [] if request.ignore_not_found else [sentence for group in groups for sentence in group.missing]
    for sentence in missing:
        failures.say(sentence)
    return failures.FAILED if missing else 0


def _show(groups: Sequence[Group], targets: Targets, query: Query, output: Output, request: Request) -> None:
    objects = [obj for group in groups for obj in group.objects]
    if output.is_table:
        _show_tables(groups, query, output, request)
    elif output.form == "name":
        click.echo(names_of(objects), nl=False)
    else:
        documents = [as_document(obj, managed_fields=request.show_managed_fields) for obj in objects]
        asked = sum(len(target.names) for target in targets.items)
        if asked == 1 and len(documents) == 1:
            click.echo(format_document(output, documents[0]), nl=False)
        elif documents or not asked:
            click.echo(format_document(output, as_list(documents)), nl=False)


def _show_tables(groups: Sequence[Group], query: Query, output: Output, request: Request) -> None:
    filled = [group for group in groups if group.objects]
    if not filled:
        if not any(group.missing for group in groups) and not request.ignore_not_found:
            click.echo(nothing_found([group.kind for group in groups], query.namespace), err=True)
        return
    for position, group in enumerate(filled):
        columns = Columns(
            kind_of(group.kind),
            wide=output.form == "wide",
            with_namespace=query.namespace is None,
            with_kind=len(groups) > 1,
            with_labels=request.show_labels,
        )
        writer = Writer(columns.headers, show_headers=not request.no_headers)
        text = writer.format(columns.cells(as_document(obj)) for obj in group.objects)
        click.echo(("\n" if position else "") + text, nl=False)


def _sort(groups: Sequence[Group], path_text: str) -> None:
    from quartermaster.cli.jsonpath import parse_path

    path = parse_path(path_text)
    for group in groups:
        found = {id(obj): next(iter(path.find(as_document(obj))), None) for obj in group.objects}
        try:
            group.objects.sort(key=lambda obj: _sort_key(found[id(obj)]))
        except TypeError:
            raise UsageError(f'cannot sort by "{path_text}": its values are of different types') from None


def _sort_key(value: Any) -> tuple[bool, Any]:
    """What has no value comes first; quantities are texts like any other here."""
    return (value is not None, value if isinstance(value, (int, float, str)) else str(value or ""))
