"""A host's part of mounting: it writes down its wish, as an object of its own, and waits for the leader's answer.

It needs no right but to write what is its own. Asking twice for the same is asking once, and a wish that is given up is
taken back, so that no volume is held for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from quartermaster.engine.election import LEADER_LEASE, LEASE_S, RETRY_S
from quartermaster.provisioning.protocol import is_deleting
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.mounts import ENDING, GRANTED, REFUSED, ClaimName, Mount, MountSpec, mount_name
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    AlreadyExistsError,
    ConflictError,
    DeadlineError,
    HostError,
    NotFoundError,
    QuartermasterError,
    RefusedError,
)

_LOOK_S = 0.1
# The next leader comes within a retry of its election.
_NOBODY_S = RETRY_S + 1.0
_WITHDRAW_S = 5.0
_LOOK_AT_LEASE_S = 1.0

Tell = Callable[[str], None]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str  # of the host and of the leader, not of the claim
    host: str
    claim: ClaimName
    path: str

    @property
    def name(self) -> str:
        return mount_name(self.host, self.claim, self.path)

    def __str__(self) -> str:
        return f"{self.claim.name} on {self.host}"


class Granted(msgspec.Struct, frozen=True):
    mount: Mount
    before: bool  # whether it had been before this was asked


async def ask(store: Store, wish: Wish, *, timeout_s: float, tell: Tell) -> Granted:
    """HostError with the leader's reason, DeadlineError with what was waited for, or that nobody leads."""
    asking = _Asking(store, wish)
    try:
        async with within(timeout_s):
            while True:
                granted = await asking.look()
                if granted is not None:
                    return granted
                asking.refuse_without_leader()
                tell(asking.why)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        await asking.give_up()
        raise DeadlineError(
            f"cannot mount {wish}: it is not granted after {timeout_s:.0f} s: {asking.why}",
            hint=f"`qm describe pvc {wish.claim.name}` tells more; --timeout waits longer",
        ) from None
    except BaseException:
        await asking.give_up()
        raise


class _Asking:
    def __init__(self, store: Store, wish: Wish) -> None:
        self.why = "it is being asked for"
        self._store = store
        self._wish = wish
        self._leading = _Leading(store, wish.namespace)
        self._found: Mount | None = None
        self._uid = ""  # of the wish that is ours
        self._looks = 0

    async def look(self) -> Granted | None:
        self._looks += 1
        mount = self._found = await find_mount(self._store, self._wish.name, self._wish.namespace)
        if mount is None:
            await self._write()
        elif is_deleting(mount):
            self.why = await self._leading.absence() or "an earlier wish for it is being taken back"
        elif mount.status.state == GRANTED:
            return Granted(mount, before=self._looks == 1)
        elif mount.status.state == ENDING or (mount.status.state == REFUSED and mount.metadata.uid == self._uid):
            raise HostError(f"cannot mount {self._wish}: {mount.status.message}")
        elif mount.status.state == REFUSED:
            await _delete(self._store, mount)  # the answer to somebody who has gone
        else:
            self._uid = mount.metadata.uid
            absence = await self._leading.absence()
            self.why = mount.status.message or absence or "the leader has not answered"
        return None

    def refuse_without_leader(self) -> None:
        if self._leading.is_over:
            raise DeadlineError(
                f"cannot mount {self._wish}: nobody leads in the namespace {self._wish.namespace}",
                hint="`qm up` starts this host, `qm operator` a leader alone",
            )

    async def _write(self) -> None:
        wish = self._wish
        made = Mount(
            metadata=ObjectMeta(name=wish.name, namespace=wish.namespace),
            spec=MountSpec(host=wish.host, claim=wish.claim, path=wish.path),
        )
        with suppress(AlreadyExistsError):
            self._found = await self._store.create(made)
            self._uid = self._found.metadata.uid

    async def give_up(self) -> None:
        """Where it does not come to it, the wish stays until it is granted or `qm volume unmount` takes it back.

        Why it was given up is what the caller has to hear, above all that it was interrupted.
        """
        mount = self._found
        if mount is not None and mount.status.state not in (GRANTED, ENDING):
            with suppress(TimeoutError, QuartermasterError):
                async with within(_WITHDRAW_S):
                    await _delete(self._store, mount)


async def withdraw(store: Store, mount: Mount, *, timeout_s: float) -> str:
    """Take the wish back, after the volume was unmounted; why the volume still counts as mounted, "" if it does not."""
    await _delete(store, mount)
    leading = _Leading(store, mount.metadata.namespace)
    why = "the leader has not answered"
    with suppress(TimeoutError):
        async with within(timeout_s):
            while True:
                found = await find_mount(store, mount.metadata.name, mount.metadata.namespace)
                if found is None or found.metadata.uid != mount.metadata.uid:
                    return ""
                why = await leading.absence() or why
                if leading.is_over:
                    return why
                await asyncio.sleep(_LOOK_S)
    return why


async def move(store: Store, mount: Mount, path: str) -> Mount:
    """It turned out to be used at another path."""

    def moved(current: Mount) -> Mount:
        return replace(current, spec=replace(current.spec, path=path))

    return await modify(store, Mount, mount.metadata.name, mount.metadata.namespace, moved)


async def mounts_of_host(store: Store, namespace: str, host: str) -> tuple[Mount, ...]:
    return tuple((await store.list(Mount, namespace, fields=f"spec.host={host}")).items)


async def find_mount(store: Store, name: str, namespace: str) -> Mount | None:
    try:
        return await store.get(Mount, name, namespace)
    except NotFoundError:
        return None


async def _delete(store: Store, mount: Mount) -> None:
    """That one, and no later one of its name."""
    meta = mount.metadata
    with suppress(NotFoundError, ConflictError):
        await store.delete(Mount, meta.name, meta.namespace, uid=meta.uid)


class _Leading:
    """Whether somebody leads: by the store's own clock where it may be asked, else by seeing the Lease change."""

    def __init__(self, store: Store, namespace: str) -> None:
        self.absent_s = 0.0
        self._store = store
        self._namespace = namespace
        self._seen: dict[str, tuple[str, float]] = {}
        self._absent_since: float | None = None
        self._next = 0.0

    async def absence(self) -> str:
        """For people; "" while somebody leads."""
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + _LOOK_AT_LEASE_S
            if await self._somebody(now):
                self._absent_since = None
            elif self._absent_since is None:
                self._absent_since = now
        self.absent_s = now - self._absent_since if self._absent_since is not None else 0.0
        return f"nobody leads in the namespace {self._namespace}" if self._absent_since is not None else ""

    @property
    def is_over(self) -> bool:
        """Whether nobody has led for longer than an election takes."""
        return self.absent_s >= _NOBODY_S

    async def _somebody(self, now: float) -> bool:
        usual = f"metadata.name={LEADER_LEASE}"
        for fields in (usual, ""):  # operators of one storage system each have Leases of other names
            for lease in (await self._store.list(Lease, self._namespace, fields=fields)).items:
                if lease.metadata.name.startswith(LEADER_LEASE) and await self._is_held(lease, now):
                    return True
        return False

    async def _is_held(self, lease: Lease, now: float) -> bool:
        name, version = lease.metadata.name, lease.metadata.resource_version
        if not lease.spec.holder_identity:
            return False
        try:
            held = await self._store.lease_held(self._namespace, name)
        except RefusedError:
            held = None  # a host may not look there
        if held is not None:
            return held
        if self._seen.get(name, ("", 0.0))[0] != version:
            self._seen[name] = (version, now)
        return now - self._seen[name][1] <= (lease.spec.lease_duration_seconds or LEASE_S) + RETRY_S
