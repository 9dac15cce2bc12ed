"""From given documents to the planners of their kinds.

`PLANNERS` names a module per kind. It has `READS`, the kinds that it wants from the store, and a function
`plan(obj, objects)`, which gets the declaration and all objects (those of the store, those of the files in their
place) and returns a `Planned`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import click
import msgspec

from quartermaster.cli.given import place, read_given
from quartermaster.cli.output import format_document, parse_output
from quartermaster.resources import from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.support.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from quartermaster.cli.session import Session
    from quartermaster.stores import Store

PLANNERS: dict[str, str] = {
    "CStorClusterConfig": "quartermaster.cli.planning_cstor",
}
# Nodes and settings of storage clusters are planned together, by `cli.plans`: one disk may be named by two nodes.
CLUSTER_KINDS = ("StorageCluster", "StorageNode")


class Planned(msgspec.Struct, frozen=True):
    """A decision as text and as data. `refused`: the declaration has mistakes, or nothing could be planned."""

    text: str
    data: Any
    refused: bool = False


class Planner(Protocol):
    """What a module of `PLANNERS` has."""

    READS: Sequence[type[Object]]

    def plan(self, obj: Any, objects: Iterable[Object], *, wide: bool) -> Planned: ...


async def plan_files(session: Session, files: Sequence[str], output: str) -> int:
    form = parse_output(output)
    manifests = read_given(files) if files else []
    async with session.store(reads_only=True) as store:
        given = place(manifests, session.namespace(store), given_namespace=session.given_namespace)
        objects = [from_document(one.kind, one.document) for one in given]
        plannable = [obj for obj in objects if kind_of(obj).kind in PLANNERS]
        clusters = not files or any(kind_of(obj).kind in CLUSTER_KINDS for obj in objects)
        if not plannable and not clusters:
            known = ", ".join(sorted((*PLANNERS, *CLUSTER_KINDS)))
            raise UsageError("cannot find anything to plan in what is given", hint=f"plannable are {known}")
        planned = []
        for obj in plannable:
            planner = cast(Planner, importlib.import_module(PLANNERS[kind_of(obj).kind]))
            stored = await read_kinds(store, planner.READS)
            planned.append(planner.plan(*_overlaid(obj, stored, objects), wide=form.form == "wide"))
        if clusters:
            from quartermaster.cli.plans import plan_clusters

            planned.append(await plan_clusters(store, session.namespace(store), given))
    if form.is_table:
        click.echo("\n".join(one.text for one in planned), nl=False)
    else:
        data = planned[0].data if len(planned) == 1 else {"plans": [one.data for one in planned]}
        click.echo(format_document(form, data), nl=False)
    return 1 if any(one.refused for one in planned) else 0


async def read_kinds(store: Store, kinds: Iterable[type[Object]]) -> list[Object]:
    """What is there of these kinds. Kinds of others may not be installed: then there is nothing of them."""
    found: list[Object] = []
    for kind in kinds:
        try:
            found += (await store.list(kind)).items
        except NotFoundError:
            if kind_of(kind).own:
                raise
            click.echo(f"note: the store does not know {kind_of(kind).resource}", err=True)
    return found


def _overlaid(obj: Object, stored: Iterable[Object], given: Iterable[Object]) -> tuple[Object, list[Object]]:
    """What was stored with what was given laid over it; a declaration keeps the uid and status it has in the store."""
    objects = {(type(one), one.key): one for one in stored}
    for one in given:
        key = (type(one), one.key)
        objects[key] = _with_identity(one, objects.get(key))
    return objects[type(obj), obj.key], list(objects.values())


def _with_identity(given: Object, stored: Object | None) -> Object:
    """What a file cannot know is taken from the store; an object that is not there yet gets a uid to be told by."""
    uid = stored.metadata.uid if stored is not None else given.metadata.uid or f"{kind_of(given).kind}-{given.key}"
    metadata = msgspec.structs.replace(given.metadata, uid=uid)
    changes: dict[str, Any] = {"metadata": metadata}
    if stored is not None and hasattr(stored, "status"):
        empty = type(given).__struct_defaults__
        if getattr(given, "status", None) in empty:
            changes["status"] = getattr(stored, "status", None)
    return msgspec.structs.replace(given, **changes)
