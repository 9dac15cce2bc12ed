"""Reading the objects that a command line names or selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.arguments import Target, Targets
from quartermaster.resources import Object, kind_of
from quartermaster.support.errors import ExpiredError, NotFoundError, UnreadableError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

PAGE = 500


class Query(msgspec.Struct, frozen=True):
    """Where to look, and what of it is wanted."""

    namespace: str | None  # None: in all of them
    labels: str = ""
    fields: str = ""

    @property
    def selects(self) -> bool:
        return bool(self.labels or self.fields)

    def namespace_for(self, kind: type[Object]) -> str | None:
        return self.namespace if kind_of(kind).namespaced else None


class Group(msgspec.Struct):
    """The objects of one kind that were found, and the sentences for the names that were not."""

    kind: type[Object]
    objects: list[Object]
    missing: list[str]
    unreadable: list[str] = []  # names; only where the caller takes them


class Listing(msgspec.Struct, frozen=True):
    """What a list found, ordered by namespace and name."""

    objects: tuple[Object, ...]
    revision: str


async def find_groups(store: Store, targets: Targets, query: Query, *, also_unreadable: bool = False) -> list[Group]:
    """One group per kind. A name that is not there is part of the answer; whatever else fails is raised.

    With `also_unreadable` a named object that does not fit its type is part of the answer too.
    """
    check_query(targets, query)
    groups = []
    for target in targets.items:
        try:
            groups.append(await _find_group(store, target, query, also_unreadable))
        except NotFoundError as error:
            # Of a category, the server may know some kinds only.
            if not targets.category:
                raise
            click.echo(f"note: {error}", err=True)
    return groups


def check_query(targets: Targets, query: Query) -> None:
    if targets.named and query.selects:
        raise UsageError("cannot use names and a selector together", hint="leave out one of them")
    if targets.named and query.namespace is None and any(kind_of(t.kind).namespaced for t in targets.items):
        raise UsageError("cannot look for a name in all namespaces", hint="say which one with -n")


async def _find_group(store: Store, target: Target, query: Query, also_unreadable: bool) -> Group:
    group = Group(target.kind, [], [])
    if not target.names:
        group.objects.extend((await list_whole(store, target.kind, query)).objects)
        return group
    for name in target.names:
        try:
            group.objects.append(await store.get(target.kind, name, query.namespace_for(target.kind) or ""))
        except NotFoundError as error:
            group.missing.append(str(error))
        except UnreadableError:
            if not also_unreadable:
                raise
            group.unreadable.append(name)
    return group


async def list_whole(store: Store, kind: type[Object], query: Query) -> Listing:
    """All of one moment that the query selects: in parts, or at once where the store forgets that moment meanwhile."""
    try:
        return await _list(store, kind, query, PAGE)
    except ExpiredError:
        return await _list(store, kind, query, 0)


async def _list(store: Store, kind: type[Object], query: Query, limit: int) -> Listing:
    from quartermaster.stores.base import in_order

    objects: list[Object] = []
    continues = ""
    while True:
        page = await store.list(
            kind,
            query.namespace_for(kind),
            labels=query.labels,
            fields=query.fields,
            limit=limit,
            continues=continues,
        )
        objects += page.items
        continues = page.continues
        if not continues:
            return Listing(in_order(objects), page.revision)
