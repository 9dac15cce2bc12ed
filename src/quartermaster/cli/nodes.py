"""Marking storage nodes and waiting for what the leader makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.hearing import last_heard
from quartermaster.cli.holding import with_marks
from quartermaster.cli.progress import Status
from quartermaster.cli.session import Session
from quartermaster.planning.health import LOST, SILENT
from quartermaster.planning.leaving import LEAVING
from quartermaster.planning.outcomes import DRAINED, DRAINING, MAINTENANCE_STATE
from quartermaster.resources import marks
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.orchestration import Host
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.modify import modify
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_LOOK_S = 0.2
_SILENT = (SILENT, LOST)
_NOBODY = "no operator has looked at it: is one running?"
_UNDO = {"into maintenance": "maintenance {} --end", "back to work": "maintenance {}"}
_AWAY = (DRAINING, DRAINED, MAINTENANCE_STATE)

# Given the node, or None when it is gone: whether that is what was wanted.
Done = Callable[[StorageNode | None], bool]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    wait: bool = True
    timeout_s: float = 3600.0


async def keep_out(session: Session, name: str, *, end: bool, reason: str, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        await _mark(store, namespace, name, {marks.MAINTENANCE: "" if end else reason or "true"})
        if wish.wait:
            wanted: Done = (lambda node: _state(node) not in _AWAY) if end else _is(MAINTENANCE_STATE)
            await _until(store, namespace, name, wanted, what="back to work" if end else "into maintenance", wish=wish)
        click.echo(f"storagenode/{name} {'is back at work' if end else 'is in maintenance'}")


async def drain_node(session: Session, name: str, *, cancel: bool, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        if cancel:
            await _take_back(store, namespace, name)
        else:
            await _drain(store, namespace, name, wish)
            click.echo(f"storagenode/{name} {'drained' if wish.wait else 'is being drained'}")


async def remove_node(session: Session, name: str, *, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        await _drain(store, namespace, name, wish, for_good=True)
        with suppress(NotFoundError):
            await store.delete(StorageNode, name, namespace)
        if wish.wait:
            await _until(store, namespace, name, _is_gone, what="removing", wish=wish)
        click.echo(f"storagenode/{name} {'removed' if wish.wait else 'is being removed'}")


async def remove_lost(session: Session, name: str, *, yes: bool, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        node = await store.get(StorageNode, name, namespace)
        host = node.status.host
        if host and not await _is_silent(store, namespace, host):
            raise RefusedError(
                f"cannot give up {name}: its host {host} lives ({await last_heard(store, namespace, host)})",
                hint=f"`qm node remove {name}` moves its data first",
            )
        if not yes:
            click.confirm(f"Give up everything that was on {host or name}?", abort=True, err=True)
        await _mark(store, namespace, name, {marks.ABANDON: host or name})
        await store.delete(StorageNode, name, namespace)
        if wish.wait:
            await _until(store, namespace, name, _is_gone, what="removing", wish=wish)
        click.echo(f"storagenode/{name} {'removed' if wish.wait else 'is being removed'}")


async def _drain(store: Store, namespace: str, name: str, wish: Wish, *, for_good: bool = False) -> None:
    await _mark(store, namespace, name, {marks.DRAIN: "true"})
    if not wish.wait:
        return
    try:
        await _until(store, namespace, name, _is_empty, what="draining", wish=wish)
    except RefusedError:
        # What was refused is not left to begin by itself one day, when there is room.
        await _mark(store, namespace, name, {marks.DRAIN: ""})
        raise
    except asyncio.CancelledError:
        verb, rest = ("remove", f"; `qm node remove {name}` finishes it") if for_good else ("drain", "")
        click.echo(f"the drain goes on{rest}; `qm node {verb} {name} --cancel` takes it back", err=True)
        raise


async def _take_back(store: Store, namespace: str, name: str) -> None:
    node = await store.get(StorageNode, name, namespace)
    if node.metadata.deletion_timestamp is not None:
        raise RefusedError(
            f"cannot take back the end of {name}: it was deleted already",
            hint="declare it again when it is gone",
        )
    was = marks.DRAIN in node.metadata.annotations
    await _mark(store, namespace, name, {marks.DRAIN: ""})
    click.echo(f"storagenode/{name} {'serves again' if was else 'was not being drained'}")


async def _mark(store: Store, namespace: str, name: str, changes: Mapping[str, str]) -> None:
    await modify(store, StorageNode, name, namespace, lambda node: with_marks(node, changes))


async def _is_silent(store: Store, namespace: str, host: str) -> bool:
    try:
        return (await store.get(Host, host, namespace)).status.state in _SILENT
    except NotFoundError:
        return True


async def _until(store: Store, namespace: str, name: str, done: Done, *, what: str, wish: Wish) -> None:
    """Wait for it, and show what the leader says meanwhile. RefusedError where it says no.

    It looks again and again in place of watching: a watch does not tell of what was gone when it began.
    """
    message = ""
    try:
        async with within(wish.timeout_s):
            with Status(f"{name}: {what}") as status:
                while True:
                    node = await _read(store, namespace, name)
                    _refuse_where_held(name, node)
                    if done(node):
                        return
                    message = node.status.message if node is not None else ""
                    status.show(message or "…")
                    await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise DeadlineError(
            f"cannot see the end of {what} {name} within {wish.timeout_s:g} s: {message or _NOBODY}",
            hint=f"it goes on; `qm node {_UNDO.get(what, 'drain {} --cancel').format(name)}` takes it back",
        ) from None


async def _read(store: Store, namespace: str, name: str) -> StorageNode | None:
    try:
        return await store.get(StorageNode, name, namespace)
    except NotFoundError:
        return None


def _refuse_where_held(name: str, node: StorageNode | None) -> None:
    leaving = find_condition(node.status.conditions, LEAVING) if node is not None else None
    if leaving is not None and leaving.status == "False":
        raise RefusedError(f"cannot drain {name}: {leaving.message}")


def _state(node: StorageNode | None) -> str:
    return node.status.state if node is not None else ""


def _is(state: str) -> Done:
    return lambda node: _state(node) == state


def _is_empty(node: StorageNode | None) -> bool:
    """Drained, or deleted by somebody else meanwhile, which takes the same."""
    return node is None or _state(node) == DRAINED


def _is_gone(node: StorageNode | None) -> bool:
    return node is None
