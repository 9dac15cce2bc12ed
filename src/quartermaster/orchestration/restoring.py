"""Backups of a cluster's objects, and how they come back without anything being done by mistake.

A backup is of the past. What is a fact of now stays as it is: hosts and their heartbeats, who leads, and all that the
cluster's own etcd stands on. The rest is put back as it was, and then nothing acts on it: the operator only observes,
and agents leave restored assignments alone, until a person has looked and says `qm resume`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from quartermaster.backends.etcd.agent import AGENT as ETCD
from quartermaster.backends.etcd.files import CERTIFICATES
from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.engine.election import LEADER_LEASE
from quartermaster.orchestration.joining.authority import AUTHORITY_SECRET
from quartermaster.orchestration.joining.tokens import NAME_PREFIX as TOKEN_PREFIX
from quartermaster.resources import kind_of
from quartermaster.resources.codec import decode_document, encode_document
from quartermaster.resources.kubernetes.core import (
    ConfigMap,
    Event,
    Lease,
    LeaseSpec,
    Secret,
)
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.resources.marks import OBSERVE_ONLY, SETTINGS_NAME
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageCluster, StorageNode, StorageStatus
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.copying import (
    Backup,
    Copied,
    Stored,
    load,
    objects_of,
    open_backup,
    uid_of,
    write_backup,
)
from quartermaster.stores.objects.keys import kind_prefix, place_of
from quartermaster.support import clock
from quartermaster.support.errors import AlreadyExistsError, ConflictError, UsageError

_ASSIGNMENTS = kind_prefix(kind_of(Assignment))
_LEASES = kind_prefix(kind_of(Lease))
_HOSTS = kind_prefix(kind_of(Host))
_SECRETS = kind_prefix(kind_of(Secret))
_CONFIG_MAPS = kind_prefix(kind_of(ConfigMap))
_EVENTS = kind_prefix(kind_of(Event))
_SERVED = (
    _ASSIGNMENTS,
    *(kind_prefix(kind_of(cls)) for cls in (StorageNode, StorageCluster, StorageStatus, PersistentVolumeClaim)),
)


async def back_up(store: Store, path: Path) -> Backup:
    """All objects but what lets hosts in: no restore ever brings that back, and who has it can become any host."""
    return await write_backup(own_store(store, "back up").kv, path, leave_out=_lets_in)


class Restored(msgspec.Struct, frozen=True):
    backup: Backup
    copied: Copied
    observed: tuple[str, ...]  # the namespaces in which nothing acts until somebody says so


async def restore(store: Store, path: Path, namespace: str, *, replace_all: bool = False) -> Restored:
    """Put back what a backup holds. A store that holds something else already is only overwritten with `replace_all`.

    It brings all namespaces back, and in all of them nothing acts afterwards, nor in `namespace`. Repeated after an
    interruption it completes the same.
    """
    target = own_store(store, "restore into")
    backup = open_backup(path)
    if not replace_all:
        await _refuse_unless_empty(target, backup)
    observed = sorted({namespace, *await _served(_from(backup)), *await _served(objects_of(target.kv))})
    for one in observed:
        await observe_only(target, one, f"restored from {path.name}, a backup of {backup.header.time}")
    await _raise_epochs(target, [stored async for stored in _leases(_from(backup))])
    copied = await load(target.kv, _from(backup), keep=is_of_now, change=_as_restored, replace=replace_all)
    return Restored(backup, copied, tuple(observed))


async def migrate(source: Store, target: Store, namespace: str) -> Copied:
    """Copy all objects into another store, with their uids, and leave the old one behind as one that acts no more."""
    old, new = own_store(source, "migrate from"), own_store(target, "migrate into")
    await _refuse_if_led(old)
    for one in sorted({namespace, *await _served(objects_of(old.kv))}):
        await observe_only(old, one, f"migrated to {new.url}")
    await _raise_epochs(new, [stored async for stored in _leases(objects_of(old.kv))])
    return await load(new.kv, objects_of(old.kv), keep=is_of_now, change=lambda _key, value: value, replace=False)


def own_store(store: Store, verb: str) -> ObjectStore:
    if isinstance(store, ObjectStore):
        return store
    raise UsageError(
        f"cannot {verb} {store.url}: an API server keeps its objects in a store of its own",
        hint="use the backup of its etcd, or a tool such as Velero",
    )


def is_of_now(key: str) -> bool:
    """Whether an object is a fact of the cluster that is there, and not of what was declared in it."""
    _, name = place_of(key)
    if key.startswith((_LEASES, _HOSTS)):
        return True
    if key.startswith(_ASSIGNMENTS):
        return name.partition(".")[0] in (ETCD, CERTIFICATES)
    return _lets_in(key) or (key.startswith(_CONFIG_MAPS) and name in (MEMORY_NAME, SETTINGS_NAME))


def _lets_in(key: str) -> bool:
    """The authority's key and the tokens with which hosts join."""
    name = place_of(key)[1]
    return key.startswith(_SECRETS) and (name == AUTHORITY_SECRET or name.startswith(TOKEN_PREFIX))


async def _served(source: AsyncIterator[Stored]) -> list[str]:
    """The namespaces that an operator works in, or would: it leads there, or somebody has declared something."""
    found: dict[str, None] = {}
    async for stored in source:
        namespace, name = place_of(stored.key)
        leads = stored.key.startswith(_LEASES) and name.startswith(LEADER_LEASE)
        if leads or stored.key.startswith(_SERVED):
            found[namespace] = None
    return list(found)


async def observe_only(store: Store, namespace: str, why: str) -> None:
    """From now on the operator only looks; `qm resume` takes it back."""
    with suppress(AlreadyExistsError):
        await store.create(ConfigMap(metadata=ObjectMeta(name=SETTINGS_NAME, namespace=namespace)))

    def marked(found: ConfigMap) -> ConfigMap:
        meta = found.metadata
        return replace(found, metadata=replace(meta, annotations={**meta.annotations, OBSERVE_ONLY: why}))

    await modify(store, ConfigMap, SETTINGS_NAME, namespace, marked)


def _as_restored(key: str, value: bytes) -> bytes:
    """An assignment of the past is not run before a leader has written it anew."""
    if not key.startswith(_ASSIGNMENTS):
        return value
    document = decode_document(value)
    annotations = document["metadata"].setdefault("annotations", {})
    annotations[OBSERVE_ONLY] = f"restored at {clock.timestamp()}"
    return encode_document(document)


async def _from(backup: Backup) -> AsyncIterator[Stored]:
    for stored in backup.read():
        yield stored


async def _leases(source: AsyncIterator[Stored]) -> AsyncIterator[Stored]:
    """The Leases of leaders: whoever leads next must have a higher epoch than they had."""
    async for stored in source:
        if stored.key.startswith(_LEASES) and place_of(stored.key)[1].startswith(LEADER_LEASE):
            yield stored


async def _raise_epochs(store: ObjectStore, known: list[Stored]) -> None:
    """Whoever leads now is deposed, and the next epoch is above all that were ever seen in either store."""
    present = [stored async for stored in _leases(objects_of(store.kv))]
    highest: dict[tuple[str, str], int] = {}
    for stored in (*known, *present):
        epoch = (decode_document(bytes(stored.value)).get("spec") or {}).get("leaseTransitions") or 0
        place = place_of(stored.key)
        highest[place] = max(highest.get(place, 0), epoch)
    for (namespace, name), epoch in sorted(highest.items()):
        spec = LeaseSpec(holder_identity="", lease_transitions=epoch + 1)
        try:
            await store.create(Lease(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec))
        except AlreadyExistsError:
            await modify(store, Lease, name, namespace, partial(_with_spec, spec))


def _with_spec(spec: LeaseSpec, lease: Lease) -> Lease:
    return replace(lease, spec=spec)


async def _refuse_unless_empty(store: ObjectStore, backup: Backup) -> None:
    """What an earlier, interrupted run of the same restore has written is in nobody's way."""
    ours = {stored.key: uid_of(bytes(stored.value)) for stored in backup.read()}
    others = []
    async for stored in objects_of(store.kv):
        known = ours.get(stored.key) == uid_of(bytes(stored.value))
        if not known and not is_of_now(stored.key) and not stored.key.startswith(_EVENTS):
            others.append(place_of(stored.key)[1])
    if others:
        raise ConflictError(
            f"cannot restore into {store.url}: it holds {len(others)} objects, such as {others[0]}",
            hint="--replace puts the backup in their place; back up what is there first",
        )


async def _refuse_if_led(store: ObjectStore) -> None:
    async for stored in _leases(objects_of(store.kv)):
        namespace, name = place_of(stored.key)
        if await store.lease_held(namespace, name):
            raise ConflictError(
                f"cannot migrate from {store.url}: an operator still leads there", hint="stop it first: `qm down`"
            )
