"""Changes as they happen: what is there first, then each change; after a forgotten revision, what has changed since."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.arguments import Targets, full_name
from quartermaster.cli.finding import Query, check_query, list_whole
from quartermaster.cli.output import Output, as_document, format_document, json_line
from quartermaster.cli.tables import Columns, Writer
from quartermaster.resources import Key, Object, kind_of
from quartermaster.support.deadlines import within
from quartermaster.support.errors import ExpiredError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Style(msgspec.Struct, frozen=True):
    """How changes are printed."""

    output: Output
    labels: bool = False
    managed_fields: bool = False
    headers: bool = True
    events: bool = False  # say what happened to the object


class Change(msgspec.Struct, frozen=True):
    type: str
    object: Object


async def show_changes(store: Store, targets: Targets, query: Query, style: Style) -> None:
    """Print until interrupted, or until nobody reads it."""
    check_query(targets, query)
    if len(targets.items) != 1 or len(targets.items[0].names) > 1:
        raise UsageError("cannot watch several kinds or several names at once", hint="watch one kind, or one object")
    target = targets.items[0]
    if target.names:
        query = msgspec.structs.replace(query, fields=f"metadata.name={target.names[0]}")
    printer = _Printer(target.kind, query, style)
    try:
        async with within(None) as whole:
            with _reader_of_output(whole):
                async with aclosing(changes(store, target.kind, query)) as batches:
                    async for batch in batches:
                        click.echo(printer.format(batch), nl=False)
    except TimeoutError:
        if not whole.expired():
            raise


@contextmanager
def _reader_of_output(scope: asyncio.Timeout) -> Iterator[None]:
    """End the scope when whoever reads the pipe goes away: without a change, no write would ever tell."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        is_pipe = False  # something else took the place of standard output
    if not is_pipe:
        yield
        return

    def look() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)  # errors and hang-ups are told without being asked for
        if poll.poll(0):
            scope.reschedule(loop.time())
        loop.remove_reader(descriptor)

    loop.add_reader(descriptor, look)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


async def changes(store: Store, kind: type[Object], query: Query) -> AsyncGenerator[list[Change], None]:
    """What is there, and then every change, in batches that belong together."""
    known: dict[Key, Object] = {}
    while True:
        listing = await list_whole(store, kind, query)
        found = {obj.key: obj for obj in listing.objects}
        if batch := _difference(known, found):
            yield batch
        known = found
        try:
            watch = store.watch(
                kind, query.namespace_for(kind), since=listing.revision, labels=query.labels, fields=query.fields
            )
            async with aclosing(watch) as events:
                async for event in events:
                    if event.object is None:
                        continue
                    _remember(known, event.type, event.object)
                    yield [Change(event.type, event.object)]
        except ExpiredError:
            # The store has forgotten the revision: list again, and tell the difference.
            continue


def _difference(known: dict[Key, Object], found: dict[Key, Object]) -> list[Change]:
    gone = [Change(DELETED, obj) for key, obj in known.items() if key not in found]
    there = []
    for key, obj in found.items():
        before = known.get(key)
        if before is None or before.metadata.uid != obj.metadata.uid:
            there.append(Change(ADDED, obj))
        elif before.metadata.resource_version != obj.metadata.resource_version:
            there.append(Change(MODIFIED, obj))
    return gone + there


def _remember(known: dict[Key, Object], type: str, obj: Object) -> None:
    if type == DELETED:
        known.pop(obj.key, None)
    else:
        known[obj.key] = obj


class _Printer:
    def __init__(self, kind: type[Object], query: Query, style: Style) -> None:
        self._style = style
        self._columns = Columns(
            kind_of(kind),
            wide=style.output.form == "wide",
            with_namespace=query.namespace is None,
            with_labels=style.labels,
            before=("EVENT",) if style.events else (),
        )
        self._writer = Writer(self._columns.headers, show_headers=style.headers)

    def format(self, batch: list[Change]) -> str:
        if self._style.output.is_table:
            return self._writer.format(self._row(change) for change in batch)
        return "".join(self._text(change) for change in batch)

    def _row(self, change: Change) -> list[str]:
        before = (change.type,) if self._style.events else ()
        return self._columns.cells(as_document(change.object), *before)

    def _text(self, change: Change) -> str:
        output, obj = self._style.output, change.object
        if output.form == "name":
            prefix = f"{change.type} " if self._style.events else ""
            return f"{prefix}{full_name(type(obj), obj.metadata.name)}\n"
        document = as_document(obj, managed_fields=self._style.managed_fields)
        shown = {"type": change.type, "object": document} if self._style.events else document
        if output.form == "json":
            return json_line(shown)
        if output.form == "yaml":
            return "---\n" + format_document(output, shown)
        return format_document(output, document) + "\n"
