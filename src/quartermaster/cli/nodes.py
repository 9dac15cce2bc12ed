"""Marking storage nodes and waiting for what the leader makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.asking import ask
from quartermaster.cli.hearing import Hearing, await_word, is_given_up_by, stays_silent
from quartermaster.cli.holding import with_marks
from quartermaster.cli.progress import Status
from quartermaster.cli.session import Session
from quartermaster.cli.stakes import Stakes, stakes_of
from quartermaster.planning.leaving import LEAVING
from quartermaster.planning.outcomes import DEPLOYING, DRAINED, DRAINING, MAINTENANCE_STATE, READY
from quartermaster.resources import marks
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.modify import modify
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_LOOK_S = 0.2
_NOBODY = "no operator has looked at it: is one running?"
_DRAINING = "draining"
_REMOVING = "removing"
_TAKING_BACK = "taking back the drain of"
_UNDO = {
    "into maintenance": "; `qm node maintenance {} --end` takes it back",
    "back to work": "; `qm node maintenance {}` takes it back",
    _DRAINING: "; `qm node drain {} --cancel` takes it back",
    _TAKING_BACK: "; `qm node drain {}` drains it after all",
}
_NOT_BACK = (DRAINING, DRAINED, MAINTENANCE_STATE, DEPLOYING)

# Given the node, or None when it is gone: whether that is what was wanted.
Done = Callable[[StorageNode | None], bool]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    wait: bool = True
    timeout_s: float = 3600.0


async def keep_out(session: Session, name: str, *, end: bool, reason: str, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        was = marks.MAINTENANCE in (await store.get(StorageNode, name, namespace)).metadata.annotations
        await _mark(store, namespace, name, {marks.MAINTENANCE: "" if end else reason or "true"})
        if end and not was:
            click.echo(f"storagenode/{name} was not in maintenance")
            return
        if end:
            said = await _until_back(store, namespace, name, "is back at work", what="back to work", wish=wish)
            click.echo(f"storagenode/{name} {said or 'is to be back at work'}")
            return
        if wish.wait:
            await _until(store, namespace, name, _is(MAINTENANCE_STATE), what="into maintenance", wish=wish)
        click.echo(f"storagenode/{name} {'is in maintenance' if wish.wait else 'is to be in maintenance'}")


async def drain_node(session: Session, name: str, *, cancel: bool, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        if cancel:
            await _take_back(store, namespace, name, wish)
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
            await _until(store, namespace, name, _is_gone, what=_REMOVING, wish=wish)
        click.echo(f"storagenode/{name} {'removed' if wish.wait else 'is being removed'}")


async def remove_lost(session: Session, name: str, *, yes: bool, wish: Wish) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        node = await store.get(StorageNode, name, namespace)
        host = node.status.host
        if host:
            hearing = await await_word(store, node)
            node = await store.get(StorageNode, name, namespace)
            if not is_given_up_by(hearing, node):
                raise _refusal(name, host, hearing)
            if not await stays_silent(store, namespace, host, hearing):
                raise _refusal(name, host, msgspec.structs.replace(hearing, ago_s=0.0))
        stakes = await stakes_of(store, node) if host else Stakes(host)
        for sentence in stakes.sentences() if host else [f"{name} never had a host"]:
            click.echo(sentence, err=True)
        if not yes:
            ask(f"Give up {name}{f', and host {host} with what is on it alone' if host else ''}?")
        await _mark(store, namespace, name, {marks.ABANDON: host or name})
        await store.delete(StorageNode, name, namespace)
        if wish.wait:
            await _until(store, namespace, name, _is_gone, what=_REMOVING, wish=wish)
        click.echo(f"storagenode/{name} {'removed' if wish.wait else 'is being removed'}")
        _tell_what_is_left(host, stakes)


def _refusal(name: str, host: str, hearing: Hearing) -> RefusedError:
    if hearing.is_late:
        return RefusedError(
            f"cannot give up {name}: nobody who leads has called its host {host} silent ({hearing.sentence})",
            hint="`qm status` says whether anybody leads; run it again when somebody does",
        )
    return RefusedError(
        f"cannot give up {name}: its host {host} lives ({hearing.sentence})",
        hint=f"`qm node remove {name}` moves its data first",
    )


def _tell_what_is_left(host: str, stakes: Stakes) -> None:
    if stakes.may_be_lost:
        click.echo("the claims of lost volumes stay until somebody deletes them: `qm delete pvc NAME`", err=True)
    if host:
        mounts = f"`qm volume unmount CLAIM --gone {host}` strikes out what was mounted there"
        click.echo(f"the Host is still there; `qm delete host {host}` forgets it, {mounts}", err=True)


async def _drain(store: Store, namespace: str, name: str, wish: Wish, *, for_good: bool = False) -> None:
    await _mark(store, namespace, name, {marks.DRAIN: "true"})
    if not wish.wait:
        return
    try:
        await _until(store, namespace, name, _is_empty, what=_DRAINING, wish=wish)
    except RefusedError:
        # What was refused is not left to begin by itself one day, when there is room.
        await _mark(store, namespace, name, {marks.DRAIN: ""})
        raise
    except asyncio.CancelledError:
        verb, rest = ("remove", f"; `qm node remove {name}` finishes it") if for_good else ("drain", "")
        click.echo(f"the drain goes on{rest}; `qm node {verb} {name} --cancel` takes it back", err=True)
        raise


async def _take_back(store: Store, namespace: str, name: str, wish: Wish) -> None:
    node = await store.get(StorageNode, name, namespace)
    if node.metadata.deletion_timestamp is not None:
        raise RefusedError(
            f"cannot take back the end of {name}: it was deleted already",
            hint="declare it again when it is gone",
        )
    was = marks.DRAIN in node.metadata.annotations
    await _mark(store, namespace, name, {marks.DRAIN: ""})
    if not was:
        click.echo(f"storagenode/{name} was not being drained")
        return
    said = await _until_back(store, namespace, name, "serves again", what=_TAKING_BACK, wish=wish)
    click.echo(f"storagenode/{name} {said or 'is not to be drained any more'}")


async def _until_back(store: Store, namespace: str, name: str, fine: str, *, what: str, wish: Wish) -> str:
    """What is to be said of the node when the leader has done what there was to do; "" where nobody waits for that."""
    if not wish.wait:
        return ""
    await _until(store, namespace, name, _is_looked_after, what=what, wish=wish)
    node = await _read(store, namespace, name)
    if _state(node) == READY:
        return fine
    return f"is {_state(node)}: {node.status.message}" if node is not None else "is gone"


async def _mark(store: Store, namespace: str, name: str, changes: Mapping[str, str]) -> None:
    await modify(store, StorageNode, name, namespace, lambda node: with_marks(node, changes))


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
                    if what == _DRAINING:
                        _refuse_where_held(name, node)
                    if done(node):
                        return
                    message = node.status.message if node is not None else ""
                    status.show(message or "…")
                    await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise DeadlineError(
            f"cannot see the end of {what} {name} within {wish.timeout_s:g} s: {message or _NOBODY}",
            hint=f"it goes on{_UNDO.get(what, '').format(name)}",
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


def _is_looked_after(node: StorageNode | None) -> bool:
    """Nothing is under way with it any more, whatever came of that."""
    return node is None or _state(node) not in ("", *_NOT_BACK)


def _is_gone(node: StorageNode | None) -> bool:
    return node is None
