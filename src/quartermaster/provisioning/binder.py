"""Carries out what `binding` decides, where there is no Kubernetes: one reconciler for claims, one for volumes.

Nothing is said to be gone because a cache does not show it: a volume whose claim seems to be gone is about to be
deleted, so the store is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result
from quartermaster.provisioning.binding import (
    Bind,
    Hold,
    bound,
    bound_status,
    choose,
    claimed,
    class_of,
    phase_of,
    phased,
    prepare,
    protected,
)
from quartermaster.provisioning.protocol import (
    BOUND,
    CLAIM_PROTECTION,
    LOST,
    VOLUME_IN_USE,
    VOLUME_PROTECTION,
    is_deleting,
    volume_name,
    without_finalizer,
)
from quartermaster.provisioning.telling import LOOK_AGAIN
from quartermaster.provisioning.term import Term, Wakes
from quartermaster.provisioning.volumes import goes_in_use, where_mounted
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.model import Key
from quartermaster.support.errors import NotFoundError


class ClaimBinder:
    """The reconciler of claims."""

    def __init__(self, term: Term, wakes: Wakes) -> None:
        self._term = term
        self._wakes = wakes
        self._said: dict[Key, str] = {}

    async def reconcile(self, request: Request) -> Result:
        claim = self._term.claims.get(request)
        if claim is None:
            self._wakes.forget(request)
            self._said.pop(request, None)
            return DONE
        if is_deleting(claim):
            return await self._let_go(claim)
        classes = self._term.classes.list()
        prepared = prepare(claim, classes)
        if prepared != claim:
            claim = await self._term.store.update(prepared)
        decision = choose(claim, class_of(claim, classes), await self._candidates(claim), self._term.host_labels())
        if isinstance(decision, Hold):
            return await self._hold(claim, decision)
        await self._bind(claim, decision)
        self._wakes.forget(request)
        return DONE

    async def _candidates(self, claim: PersistentVolumeClaim) -> Sequence[PersistentVolume]:
        name = claim.spec.volume_name
        if not name:
            made = self._term.volumes.get(Key("", volume_name(claim)))
            # What was made for the claim spares looking at all others.
            return (made,) if made is not None else self._term.volumes.list()
        found = self._term.volumes.get(Key("", name))
        if found is None and claim.status.phase != LOST:
            found = await self._live_volume(name)
        return (found,) if found is not None else ()

    async def _bind(self, claim: PersistentVolumeClaim, decision: Bind) -> None:
        volume = claimed(decision.volume, claim)
        if volume is not decision.volume:
            volume = await self._term.store.update(volume)
        named = bound(claim, volume)
        if named != claim:
            claim = await self._term.store.update(named)
        status = bound_status(claim, volume)
        if status != claim.status:
            await self._term.store.update_status(replace(claim, status=status))

    async def _hold(self, claim: PersistentVolumeClaim, decision: Hold) -> Result:
        self._wakes.wait(claim.key, claim.spec.storage_class_name or "", claim.spec.volume_name)
        if decision.reason and self._said.get(claim.key) != decision.why:
            self._said[claim.key] = decision.why
            lost = decision.phase == LOST
            self._term.events.record(claim, decision.reason, decision.why, type="Warning" if lost else "Normal")
        if claim.status.phase != decision.phase:
            status = replace(claim.status, phase=decision.phase)
            await self._term.store.update_status(replace(claim, status=status))
        return DONE

    async def _let_go(self, claim: PersistentVolumeClaim) -> Result:
        """Not while somebody uses it."""
        if CLAIM_PROTECTION not in claim.metadata.finalizers:
            return DONE
        volume = await self._live_volume(claim.spec.volume_name) if claim.spec.volume_name else None
        mounted = where_mounted(volume) if volume is not None else ""
        if volume is not None and mounted and not goes_in_use(volume):
            why = f"it is deleted when it is mounted nowhere any more: {mounted}"
            if self._said.get(claim.key) != why:
                self._said[claim.key] = why
                self._term.events.record(claim, VOLUME_IN_USE, why)
            return LOOK_AGAIN
        await self._term.store.update(without_finalizer(claim, CLAIM_PROTECTION))
        return DONE

    async def _live_volume(self, name: str) -> PersistentVolume | None:
        try:
            return await self._term.store.get(PersistentVolume, name)
        except NotFoundError:
            return None


class VolumeBinder:
    """The reconciler of volumes."""

    def __init__(self, term: Term) -> None:
        self._term = term

    async def reconcile(self, request: Request) -> Result:
        volume = self._term.volumes.get(request)
        if volume is None:
            return DONE
        if (wanted := protected(volume)) is not volume:
            volume = await self._term.store.update(wanted)
        phase, message = phase_of(volume, self._cached_claim(volume))
        if phase not in (BOUND, volume.status.phase):
            phase, message = phase_of(volume, await self._live_claim(volume))
        told = phased(volume, phase, message)
        if told is not volume:
            volume = await self._term.store.update_status(told)
        if is_deleting(volume) and phase != BOUND and VOLUME_PROTECTION in volume.metadata.finalizers:
            await self._term.store.update(without_finalizer(volume, VOLUME_PROTECTION))
        return DONE

    def _cached_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        reference = volume.spec.claim_ref
        return self._term.claims.get(Key(reference.namespace, reference.name)) if reference is not None else None

    async def _live_claim(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        reference = volume.spec.claim_ref
        if reference is None:
            return None
        try:
            return await self._term.store.get(PersistentVolumeClaim, reference.name, reference.namespace)
        except NotFoundError:
            return None
