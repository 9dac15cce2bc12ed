"""Reading the objects that a command line names or selects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.arguments import Target, Targets
from quartermaster.resources import Object, kind_of
from quartermaster.support.errors import NotFoundError, UsageError

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


async def find_groups(store: Store, targets: Targets, query: Query) -> list[Group]:
    """One group per kind. A name that is not there is part of the answer; whatever else fails is raised."""
    check_query(targets, query)
    groups = []
    for target in targets.items:
        try:
            groups.append(await _find_group(store, target, query))
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


async def _find_group(store: Store, target: Target, query: Query) -> Group:
    group = Group(target.kind, [], [])
    if not target.names:
        async for obj in all_objects(store, target.kind, query):
            group.objects.append(obj)
        return group
    for name in target.names:
        try:
            group.objects.append(await store.get(target.kind, name, query.namespace_for(target.kind) or ""))
        except NotFoundError as error:
            group.missing.append(str(error))
    return group


async def all_objects(store: Store, kind: type[Object], query: Query) -> AsyncIterator[Object]:
    """Every object that the query selects, fetched in pages of one moment."""
    continues = ""
    while True:
        page = await store.list(
            kind,
            query.namespace_for(kind),
            labels=query.labels,
            fields=query.fields,
            limit=PAGE,
            continues=continues,
        )
        for obj in page.items:
            yield obj
        continues = page.continues
        if not continues:
            return
