"""Marks on a StorageStatus by which people hold a cluster or let it go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec.structs import replace

from quartermaster.cli.asking import ask
from quartermaster.cli.failures import FAILED
from quartermaster.cli.finding import Query, list_whole
from quartermaster.cli.session import Session
from quartermaster.cli.statuses import is_named
from quartermaster.planning.steps import APPROVAL_NEEDED, digests_in, steps_in
from quartermaster.resources import marks
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Object
from quartermaster.resources.storage import StorageStatus
from quartermaster.stores.modify import modify
from quartermaster.support.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

T = TypeVar("T", bound=Object)


async def pause(session: Session, names: Sequence[str], *, everything: bool, reason: str) -> None:
    async with session.store() as store:
        session.name_store(store)
        for status in await _named(session, store, names, everything=everything):
            await _mark(store, status, {marks.PAUSED: reason or "true"})
            click.echo(f"storagestatus/{status.metadata.name} paused")


async def resume(session: Session, names: Sequence[str], *, everything: bool) -> int:
    """The exit code: without a name, 1 while a cluster is still paused, for that may be what was meant."""
    async with session.store() as store:
        session.name_store(store)
        if not names and not everything:
            await _act_again(store, session.namespace(store))
            return _tell_paused(await _statuses(session, store))
        for status in await _named(session, store, names, everything=everything):
            was = marks.PAUSED in status.metadata.annotations
            await _mark(store, status, {marks.PAUSED: ""})
            click.echo(f"storagestatus/{status.metadata.name} {'resumed' if was else 'was not paused'}")
    return 0


def _tell_paused(statuses: Sequence[StorageStatus]) -> int:
    paused = [one.metadata.name for one in statuses if marks.PAUSED in one.metadata.annotations]
    for name in paused:
        click.echo(f"{name} is paused: `qm resume {name}` goes on", err=True)
    return FAILED if paused else 0


async def _act_again(store: Store, namespace: str) -> None:
    """After a restore."""
    try:
        settings = await store.get(ConfigMap, marks.SETTINGS_NAME, namespace)
    except NotFoundError:
        settings = None
    if settings is None or marks.OBSERVE_ONLY not in settings.metadata.annotations:
        click.echo("nothing is held back: the operator acts already")
        return
    await modify(
        store, ConfigMap, marks.SETTINGS_NAME, namespace, lambda one: with_marks(one, {marks.OBSERVE_ONLY: ""})
    )
    click.echo("the operator acts again")


async def approve(session: Session, name: str, *, yes: bool, only_list: bool) -> None:
    async with session.store(reads_only=only_list) as store:
        status = (await _named(session, store, [name], everything=False))[0]
        waiting = find_condition(status.status.conditions, APPROVAL_NEEDED)
        digests = digests_in(waiting.message) if waiting is not None and waiting.status == "True" else []
        if waiting is None or not digests:
            click.echo(f"nothing waits for an approval in {status.metadata.name}")
            return
        for step in steps_in(waiting.message.partition(": ")[2]):
            click.echo(f"  {step}")
        if only_list:
            return
        session.name_store(store)
        if not yes:
            ask("Approve these steps?")
        known = status.metadata.annotations.get(marks.APPROVED, "").split()
        await _mark(store, status, {marks.APPROVED: " ".join(dict.fromkeys((*known, *digests)))})
        click.echo(f"storagestatus/{status.metadata.name}: {len(digests)} steps approved")


async def _named(session: Session, store: Store, names: Sequence[str], *, everything: bool) -> list[StorageStatus]:
    namespace = session.namespace(store)
    if bool(names) == everything:
        raise UsageError("cannot tell which clusters are meant", hint="name them, or give --all")
    found = await _statuses(session, store)
    for name in names:
        if not any(is_named(one, name) for one in found):
            known = ", ".join(one.metadata.name for one in found) or "none"
            raise NotFoundError(f"cannot find the storage cluster {name} in {namespace}", hint=f"there are {known}")
    return [one for one in found if everything or any(is_named(one, name) for name in names)]


async def _statuses(session: Session, store: Store) -> list[StorageStatus]:
    listing = await list_whole(store, StorageStatus, Query(session.namespace(store)))
    return [one for one in listing.objects if isinstance(one, StorageStatus)]


async def _mark(store: Store, status: StorageStatus, changes: Mapping[str, str]) -> None:
    meta = status.metadata
    await modify(store, StorageStatus, meta.name, meta.namespace, _marking(changes))


def _marking(changes: Mapping[str, str]) -> Callable[[StorageStatus], StorageStatus]:
    return lambda status: with_marks(status, changes)


def with_marks(obj: T, changes: Mapping[str, str]) -> T:
    """With these annotations; an empty text takes one away."""
    annotations = {**obj.metadata.annotations, **changes}
    kept = {name: text for name, text in annotations.items() if text}
    return replace(obj, metadata=replace(obj.metadata, annotations=kept))
