"""Deletes volumes whose claims are gone. The volume alone says all that is needed: its class may be gone too."""

from __future__ import annotations

from quartermaster.engine import DONE, Request, Result
from quartermaster.provisioning.claims import Wait
from quartermaster.provisioning.holds import held
from quartermaster.provisioning.intent import record_of
from quartermaster.provisioning.protocol import (
    RELEASED,
    VOLUME_FAILED_DELETE,
    VOLUME_FAILED_KEEP,
    VOLUME_FINALIZER,
    is_deleting,
    without_finalizer,
)
from quartermaster.provisioning.telling import LOOK_AGAIN
from quartermaster.provisioning.term import Term
from quartermaster.provisioning.volumes import Blocked, Change, Keep, Remove, fate, goes_in_use
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.support.errors import NotFoundError


class Deleter:
    """The reconciler of volumes; one for each term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._said: dict[str, str] = {}

    async def reconcile(self, request: Request) -> Result:
        volume = self._term.volumes.get(request)
        if volume is None or not self._is_ours(volume):
            self._said.pop(request.name, None)
            return DONE
        decision = fate(volume, self._term.setup.provisioners)
        if isinstance(decision, Change):
            await self._term.store.update(decision.volume)
        elif isinstance(decision, Keep):
            async with self._term.working(request.name):
                return await self._keep(decision)
        elif isinstance(decision, Blocked):
            self._say(volume, decision.why)
            return LOOK_AGAIN
        elif isinstance(decision, Remove):
            async with self._term.working(request.name):
                return await self._remove(request)
        return DONE

    def _is_ours(self, volume: PersistentVolume) -> bool:
        record = record_of(volume)
        # One without a record may be of any cluster: all of them say that it cannot be deleted.
        return record is None or self._term.setup.serves(record.cluster)

    async def _keep(self, decision: Keep) -> Result:
        """An agent that was asked to delete it tries again for as long as it is asked."""
        record = record_of(decision.volume)
        if record is not None and decision.volume.status.phase == RELEASED:
            spared = await self._term.spare(record.cluster, record.volume)
            if spared is None:
                return LOOK_AGAIN
            if not spared:
                why = "cannot keep it: what was in it was deleted before its policy was changed"
                self._term.events.record(decision.volume, VOLUME_FAILED_KEEP, why, type="Warning")
        await self._term.store.update(decision.volume)
        return DONE

    async def _remove(self, request: Request) -> Result:
        """What cannot be undone is decided on what the store says now."""
        try:
            volume = await self._term.store.get(PersistentVolume, request.name)
        except NotFoundError:
            return DONE
        decision = fate(volume, self._term.setup.provisioners)
        if not isinstance(decision, Remove) or await self._is_claimed(volume):
            return LOOK_AGAIN
        if why := await held(self._term.store, decision.record.cluster):
            self._say(volume, why)
            return LOOK_AGAIN
        forced = goes_in_use(volume)
        left = await self._term.end(decision.record.cluster, decision.record.volume, forced=forced)
        if isinstance(left, Wait):
            self._say(volume, left.why)
        if left is not None:
            return LOOK_AGAIN
        if not is_deleting(volume):
            volume = await self._term.store.delete(PersistentVolume, request.name, uid=volume.metadata.uid)
        try:
            volume = await self._term.store.get(PersistentVolume, request.name)
        except NotFoundError:
            return DONE
        if VOLUME_FINALIZER in volume.metadata.finalizers:
            await self._term.store.update(without_finalizer(volume, VOLUME_FINALIZER))
        self._term.taken.forget(request.name)
        self._said.pop(request.name, None)
        return DONE

    async def _is_claimed(self, volume: PersistentVolume) -> bool:
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return False
        try:
            claim = await self._term.store.get(PersistentVolumeClaim, reference.name, reference.namespace)
        except NotFoundError:
            return False
        return claim.metadata.uid == reference.uid and claim.spec.volume_name in ("", volume.metadata.name)

    def _say(self, volume: PersistentVolume, why: str) -> None:
        if self._said.get(volume.metadata.name) != why:
            self._said[volume.metadata.name] = why
            self._term.events.record(volume, VOLUME_FAILED_DELETE, f"cannot delete it: {why}", type="Warning")
