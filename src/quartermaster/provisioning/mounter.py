"""Carries out what `mounting` answers: a mount is written on its volume before the host is told to go ahead, and is
taken off it after the host has said that it is over.

Everything is read from the store, not from a cache: the answer protects data, and a cache shows an object under the
name that it gives itself. `Mount.status.volume` is the intent: from then on the volume may carry the mount.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result
from quartermaster.provisioning.mounting import Answer, Situation, answer, paths_on, type_asked
from quartermaster.provisioning.protocol import (
    SELECTED_NODE,
    is_deleting,
    mounts_of,
    with_annotations,
    with_finalizer,
    with_mounts,
    without_finalizer,
)
from quartermaster.provisioning.term import Term
from quartermaster.provisioning.topology import labels_of
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import MOUNT_FINALIZER
from quartermaster.resources.model import Key, Object
from quartermaster.resources.mounts import GRANTED, REFUSED, WAITING, Mount, MountStatus
from quartermaster.support.errors import NotFoundError

T = TypeVar("T", bound=Object)

_LOOK_AGAIN = Result(requeue_after_s=5.0)
# Where a chosen host was given up by whoever places volumes, it is not offered again at once.
_OFFER_AGAIN_S = 10.0


class Mounter:
    """The reconciler of Mounts; one for each term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._offered: dict[Key, float] = {}

    async def reconcile(self, request: Request) -> Result:
        mount = await self._find(Mount, request.name, request.namespace)
        if mount is None:
            self._offered.pop(request, None)
            return DONE
        host = kind_of(Mount).host_of(request.name)
        if (mount.metadata.name, mount.metadata.namespace, mount.spec.host) != (request.name, request.namespace, host):
            return DONE  # a host writes what it likes at its own keys; what does not fit them is nothing
        if is_deleting(mount):
            return await self._release(mount, host)
        named = mount.spec.claim
        claim = await self._find(PersistentVolumeClaim, named.name, named.namespace)
        volume = mount.status.volume or (claim.spec.volume_name if claim is not None else "")
        async with self._term.working(volume or request.name):
            return await self._answer(mount, host, claim)

    async def _answer(self, mount: Mount, host: str, claim: PersistentVolumeClaim | None) -> Result:
        """Under the lock of the volume, so that nobody deletes it between the look and the answer."""
        classes, volume = self._term.classes, None
        storage_class = classes.get(Key("", claim.spec.storage_class_name or "")) if claim is not None else None
        if claim is not None:
            name = claim.spec.volume_name
            volume = await self._find(PersistentVolume, name) if name else None
            asked = type_asked(claim, storage_class, volume)
            if asked and asked not in self._term.setup.drivers:
                return DONE  # another operator's, of this namespace
        situation = Situation(
            mount=mount,
            host=host,
            labels=labels_of(host, self._term.host_labels()),
            namespace=self._term.setup.namespace,
            claim=claim,
            storage_class=storage_class,
            classes=classes.list(),
            volume=volume,
        )
        decision = answer(situation)
        if decision.state != REFUSED and MOUNT_FINALIZER not in mount.metadata.finalizers:
            mount = await self._term.store.update(with_finalizer(mount, MOUNT_FINALIZER))
        if decision.consumer and claim is not None:
            await self._offer(claim, host)
        if decision.volume:
            mount, decision = await self._write_down(replace(situation, mount=mount), decision)
        if mount.status.volume and mount.status.volume != decision.volume:
            await self._strike_out(mount, host)
        await self._say(mount, MountStatus(state=decision.state, message=decision.why, volume=decision.volume))
        return _LOOK_AGAIN if decision.state == WAITING else DONE

    async def _offer(self, claim: PersistentVolumeClaim, host: str) -> None:
        """The host is the first consumer of the claim."""
        now = asyncio.get_running_loop().time()
        if now < self._offered.get(claim.key, 0.0):
            return
        self._offered[claim.key] = now + _OFFER_AGAIN_S
        await self._term.store.update(with_annotations(claim, {SELECTED_NODE: host}))

    async def _write_down(self, situation: Situation, decision: Answer) -> tuple[Mount, Answer]:
        mount, host, name = situation.mount, situation.host, decision.volume
        if mount.status.volume != name:
            if mount.status.volume:
                await self._strike_out(mount, host)
            intent = MountStatus(state=WAITING, message="it is being written down", volume=name)
            mount = await self._say(mount, intent)
        volume = situation.volume
        if volume is None or volume.metadata.name != name:
            volume = await self._find(PersistentVolume, name)
        if volume is None:
            return mount, decision  # what was granted outlives even its volume
        # By the version on which it was decided: two hosts never get a volume that is for one.
        wanted = with_mounts(volume, {**mounts_of(volume), host: await self._paths(host, name)})
        if wanted != volume:
            wanted = await self._term.store.update(wanted)
        if decision.state != GRANTED or mount.status.state == GRANTED:
            return mount, decision
        # A deletion that began before the volume was written did not see it, and goes on.
        named = mount.spec.claim
        claim = await self._find(PersistentVolumeClaim, named.name, named.namespace)
        return mount, answer(replace(situation, mount=mount, claim=claim, volume=wanted))

    async def _release(self, mount: Mount, host: str) -> Result:
        if MOUNT_FINALIZER not in mount.metadata.finalizers:
            return DONE
        if mount.status.volume:
            async with self._term.working(mount.status.volume):
                await self._strike_out(mount, host)
        await self._term.store.update(without_finalizer(mount, MOUNT_FINALIZER))
        return DONE

    async def _strike_out(self, mount: Mount, host: str) -> None:
        volume = await self._find(PersistentVolume, mount.status.volume)
        if volume is None:
            return
        left = await self._paths(host, volume.metadata.name, without=mount.metadata.name)
        wanted = with_mounts(volume, {**mounts_of(volume), host: left})
        if wanted != volume:
            await self._term.store.update(wanted)

    async def _paths(self, host: str, volume: str, *, without: str = "") -> tuple[str, ...]:
        found = await self._term.store.list(Mount, self._term.setup.namespace, fields=f"spec.host={host}")
        return paths_on(found.items, host, volume, without=without)

    async def _say(self, mount: Mount, status: MountStatus) -> Mount:
        if status == mount.status:
            return mount
        return await self._term.store.update_status(replace(mount, status=status))

    async def _find(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        try:
            return await self._term.store.get(kind, name, namespace)
        except NotFoundError:
            return None
