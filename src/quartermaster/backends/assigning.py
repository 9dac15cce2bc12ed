"""How a manager asks an agent for something: Assignments, written only where they differ from what is wanted.

A change raises `spec.generation` and carries the epoch of the leader that made it. Nothing is read from the store
unless somebody else wrote in between: agents report into the same objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from quartermaster.engine.controller import Scope
from quartermaster.planning.cluster import Desired
from quartermaster.resources.marks import DELETE_IN_USE, OBSERVE_ONLY
from quartermaster.resources.model import Key, ObjectMeta
from quartermaster.resources.orchestration import SUCCEEDED, Assignment, AssignmentSpec, assignment_name
from quartermaster.support.errors import AlreadyExistsError, ConflictError, FencedError, NotFoundError

_ATTEMPTS = 8
# Longer than that a cache is not behind; what was written and deleted by others within it leaves no other trace.
_CACHE_LAG_S = 30.0


class _Written(NamedTuple):
    """What we wrote last, and the version that it took the place of ("" for none): the cache may still show that."""

    base: str
    assignment: Assignment | None  # None: deleted
    until: float  # loop time after which the cache is believed in any case


class Assigning:
    """The assignments of one namespace in one term of one leader.

    `scope.store` fences every write. `writes` counts them.
    """

    def __init__(self, scope: Scope, namespace: str) -> None:
        self.namespace = namespace
        self.epoch = scope.fence.epoch if scope.fence is not None else 0
        self.writes = 0
        self._store = scope.store
        self._cache = scope.caches.of(Assignment, namespace)
        self._written: dict[Key, _Written] = {}

    def get(self, host: str, agent: str, instance: str = "") -> Assignment | None:
        """As last seen or last written, whichever is newer."""
        return self._known(Key(self.namespace, assignment_name(agent, host, instance)))

    async def latest(self, host: str, agent: str, instance: str = "") -> Assignment | None:
        """As the store has it, for what cannot be taken back: a write of which nobody knew whether it arrived, or one
        of an earlier leader, may be shown late. From now on `get` and `all` show it.
        """
        key = Key(self.namespace, assignment_name(agent, host, instance))
        found = await self._read(key)
        self._show(key, found)
        return found

    def all(self) -> list[Assignment]:
        """Every assignment of the namespace, as last seen or last written; by name."""
        found = {assignment.key: assignment for assignment in self._cache.list()}
        for key in list(self._written):
            known = self._known(key)
            if known is not None:
                found[key] = known
            else:
                found.pop(key, None)
        return [found[key] for key in sorted(found)]

    async def ensure(self, desired: Desired, *, ask: bool = False) -> Assignment | None:
        """The assignment that says so, written if it did not. `config=None` asks for the service to be gone.

        None: it was to be gone, and as far as is known nobody was ever asked for it. With `ask` the agent is asked all
        the same: what is known may be old, or the assignment lost with a store.

        ConflictError: it says something else than `get` and `all` showed, so whoever decided knew too little. From now
        on they show it. That is so after a write of our own of which nobody knew whether it arrived.
        """
        key = Key(self.namespace, assignment_name(desired.agent, desired.host, desired.instance))
        if desired.config is not None:
            desired = replace(desired, config=as_plain(desired.config))
        current = self._known(key)
        for _ in range(_ATTEMPTS):
            if current is None:
                if desired.config is None and not ask:
                    return None
                try:
                    return await self._create(key, desired)
                except AlreadyExistsError:
                    current = await self._fresh(key, current, desired)
                    continue
            wanted = changed(current, desired, self.epoch)
            if wanted is current:
                return current
            try:
                return await self._update(key, current, wanted)
            except (ConflictError, NotFoundError):
                current = await self._fresh(key, current, desired)
        raise ConflictError(f"cannot write the assignment {key}: it changes all the time", hint="it is tried again")

    async def retire(
        self,
        host: str,
        agent: str,
        instance: str = "",
        *,
        lost: bool = False,
        ask: bool = False,
        forced: bool = False,
    ) -> bool:
        """Ask for the service to be gone; True once its agent has said so and the assignment is deleted.

        With `lost` nobody waits for a host that does not answer: True at once. The assignment stays, so that the
        agent clears up if the host ever comes back. `ask` is that of `ensure`. With `forced` the agent does so also
        while somebody uses the service.
        """
        key = Key(self.namespace, assignment_name(agent, host, instance))
        current = await self.ensure(Desired(host, agent, None, instance), ask=ask)
        if current is None:
            return True
        if not is_gone(current):
            if forced is not (DELETE_IN_USE in current.metadata.annotations):
                await self._force(key, current, forced=forced)
            return lost
        try:
            await self._store.delete(
                Assignment,
                key.name,
                key.namespace,
                uid=current.metadata.uid,
                revision=current.metadata.resource_version,
            )
        except ConflictError:
            self._written.pop(key, None)
            return False
        except NotFoundError:
            pass
        self._note(key, current.metadata.resource_version, None)
        return True

    async def _force(self, key: Key, current: Assignment, *, forced: bool) -> None:
        kept = {name: text for name, text in current.metadata.annotations.items() if name != DELETE_IN_USE}
        metadata = replace(current.metadata, annotations={**kept, DELETE_IN_USE: "true"} if forced else kept)
        try:
            await self._update(key, current, replace(current, metadata=metadata))
        except (ConflictError, NotFoundError):
            self._written.pop(key, None)  # by the agent, which has just reported: it is tried again

    async def _create(self, key: Key, desired: Desired) -> Assignment:
        made = await self._store.create(first_assignment(self.namespace, desired, self.epoch))
        self._note(key, "", made)
        return made

    async def _update(self, key: Key, current: Assignment, wanted: Assignment) -> Assignment:
        made = await self._store.update(wanted)
        self._note(key, current.metadata.resource_version, made)
        return made

    def _note(self, key: Key, base: str, assignment: Assignment | None) -> None:
        self.writes += 1
        now = asyncio.get_running_loop().time()
        self._written.pop(key, None)  # so that they stay in the order of their ends
        self._written[key] = _Written(base, assignment, now + _CACHE_LAG_S)
        while (oldest := next(iter(self._written))) != key and self._written[oldest].until <= now:
            del self._written[oldest]

    def _known(self, key: Key) -> Assignment | None:
        cached = self._cache.get(key)
        written = self._written.get(key)
        if written is None:
            return cached
        version = cached.metadata.resource_version if cached is not None else ""
        if version == written.base and asyncio.get_running_loop().time() < written.until:
            return written.assignment
        # The cache has moved on, past our write or to it.
        del self._written[key]
        return cached

    async def _fresh(self, key: Key, known: Assignment | None, desired: Desired) -> Assignment | None:
        """What the store has, if that is no reason to decide anew: agents change the status all the time."""
        found = await self._read(key)
        if found is None or (known is not None and found.spec == known.spec):
            return found
        if changed(found, desired, self.epoch) is found:
            return found
        self._show(key, found)
        raise ConflictError(f"cannot write the assignment {key}: it says something else", hint="it is decided anew")

    def _show(self, key: Key, found: Assignment | None) -> None:
        cached = self._cache.get(key)
        base = cached.metadata.resource_version if cached is not None else ""
        self._written[key] = _Written(base, found, asyncio.get_running_loop().time() + _CACHE_LAG_S)

    async def _read(self, key: Key) -> Assignment | None:
        self._written.pop(key, None)
        try:
            return await self._store.get(Assignment, key.name, key.namespace)
        except NotFoundError:
            return None


def first_assignment(namespace: str, desired: Desired, epoch: int = 0) -> Assignment:
    """What is written where there was none."""
    spec = AssignmentSpec(
        host=desired.host,
        agent=desired.agent,
        instance=desired.instance,
        generation=1,
        epoch=epoch,
        desired=desired.config,
        absent=True if desired.config is None else None,
        deadline_seconds=desired.deadline_s,
    )
    metadata = ObjectMeta(name=assignment_name(desired.agent, desired.host, desired.instance), namespace=namespace)
    return Assignment(metadata=metadata, spec=spec)


def as_plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it comes back from a store, so that the same compares equal: lists for tuples."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return plain


def changed(current: Assignment, desired: Desired, epoch: int) -> Assignment:
    """The assignment as it should be: the very same object where nothing differs."""
    spec = current.spec
    absent = True if desired.config is None else None
    meta = current.metadata
    restored = OBSERVE_ONLY in meta.annotations  # agents leave it alone until it is written anew
    same = spec.desired == desired.config and bool(spec.absent) == bool(absent) and not restored
    if same and (absent or spec.deadline_seconds == desired.deadline_s):
        return current
    if spec.epoch > epoch:
        raise FencedError(
            f"cannot write the assignment {current.key}: epoch {spec.epoch} has written it, and this is epoch {epoch}",
            hint="somebody else leads; stop",
        )
    wanted = replace(
        spec,
        desired=desired.config,
        absent=absent,
        deadline_seconds=desired.deadline_s,
        generation=spec.generation + 1,
        epoch=epoch,
    )
    if restored:
        kept = {name: value for name, value in meta.annotations.items() if name != OBSERVE_ONLY}
        meta = replace(meta, annotations=kept)
    return replace(current, metadata=meta, spec=wanted)


def is_done(assignment: Assignment) -> bool:
    """Whether the agent says that what is asked now holds."""
    status = assignment.status
    return status.state == SUCCEEDED and status.observed_generation == assignment.spec.generation


def is_gone(assignment: Assignment) -> bool:
    """Whether the service was to be gone, and is."""
    return bool(assignment.spec.absent) and is_done(assignment)
