"""Carries out what `growing` decides for a bound claim."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from quartermaster.backends.base import VolumeDriver, desired_now
from quartermaster.engine import DONE, Result
from quartermaster.planning.cluster import Desired, VolumeView
from quartermaster.provisioning import claims, growing
from quartermaster.provisioning.holds import held
from quartermaster.provisioning.intent import record_of
from quartermaster.provisioning.protocol import (
    BOUND,
    RESIZE_FAILED,
    RESIZE_SUCCEEDED,
    RESIZING,
    amount,
    is_deleting,
    is_growing,
    refers_to,
)
from quartermaster.provisioning.telling import LOOK_AGAIN, Telling
from quartermaster.provisioning.term import Term, Wakes
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import Assignment
from quartermaster.support.errors import NotFoundError

_SOON = Result(requeue_after_s=1.0)
_STEPS = 8  # more than any claim takes at once


class Expander:
    def __init__(self, term: Term, wakes: Wakes, telling: Telling) -> None:
        self._term = term
        self._wakes = wakes
        self._telling = telling

    async def reconcile(self, claim: PersistentVolumeClaim) -> Result:
        volume = self._term.volumes.get(Key("", claim.spec.volume_name))
        record = record_of(volume) if volume is not None else None
        if volume is None or record is None or not self._term.setup.serves(record.cluster):
            return DONE
        if claim.status.phase != BOUND or not refers_to(volume, claim):
            return DONE
        driver = self._term.setup.drivers[record.cluster.type]
        growth = growing.Growth(
            claim=claim,
            volume=volume,
            record=record,
            storage_class=self._term.classes.get(Key("", volume.spec.storage_class_name)),
        )
        if isinstance(growing.next_growth(growth, driver), claims.Nothing):
            self._telling.forget(claim.key)
            return DONE
        self._wakes.expect(record.volume.name, claim.key)
        return await self._go_on(await self._begin(growth, driver), driver)

    async def _begin(self, growth: growing.Growth, driver: VolumeDriver) -> growing.Growth:
        """With all that is taken of the cluster, and what takes room written before another looks."""
        key = growth.record.cluster
        desired = desired_now(driver, growth.record.volume, self._term.setup.views(key))
        assignment = self._term.assigning.get(desired.host, desired.agent, desired.instance)
        async with self._term.placing(key):
            growth = replace(growth, view=await self._term.view(key), assignment=assignment)
            act = growing.next_growth(growth, driver)
            if isinstance(act, growing.Begin):
                growth = replace(growth, claim=await self._promise(growth, act))
        return growth

    async def _go_on(self, growth: growing.Growth, driver: VolumeDriver) -> Result:
        for _ in range(_STEPS):
            act = growing.next_growth(growth, driver)
            match act:
                case claims.Make():
                    if why := await held(self._term.store, growth.record.cluster):
                        return await self._wait(growth, claims.Wait(claims.PAUSED, why))
                    made = await self._make(growth, act.desired)
                    if made is None:
                        break
                    growth = replace(growth, assignment=made)
                case growing.Enlarge():
                    growth = await self._enlarge(growth, act)
                case growing.Begin():
                    return _SOON  # one growth is over, and for the next it is looked again at all that is taken
                case growing.Report():
                    growth = replace(growth, claim=await self._report(growth, act))
                case claims.Wait():
                    return await self._wait(growth, act)
                case claims.Quiet():
                    return LOOK_AGAIN
                case claims.Nothing():
                    return DONE
                case _:
                    assert_never(act)
        return LOOK_AGAIN

    async def _make(self, growth: growing.Growth, desired: Desired) -> Assignment | None:
        """None: what was known is old. A volume that is being deleted must not be asked for again."""
        async with self._term.working(growth.record.volume.name):
            meta = growth.claim.metadata
            try:
                claim = await self._term.store.get(PersistentVolumeClaim, meta.name, meta.namespace)
                volume = await self._term.store.get(PersistentVolume, growth.record.volume.name)
            except NotFoundError:
                return None
            if is_deleting(claim) or is_deleting(volume) or not refers_to(volume, claim):
                return None
            return await self._term.assigning.ensure(desired)

    async def _enlarge(self, growth: growing.Growth, act: growing.Enlarge) -> growing.Growth:
        volume = await self._term.store.update(act.volume)
        return replace(growth, volume=volume, record=record_of(volume) or growth.record)

    async def _promise(self, growth: growing.Growth, act: growing.Begin) -> PersistentVolumeClaim:
        volume, size = growth.record.volume, amount(act.status.allocated_resources)
        placement = volume.placement
        taken = VolumeView(volume.name, size, placement.hosts, dict(placement.details), kept=True)
        self._term.taken.remember(growth.record.cluster, taken)
        written = await self._term.store.update_status(replace(growth.claim, status=act.status))
        self._term.events.record(written, RESIZING, act.why)
        return written

    async def _report(self, growth: growing.Growth, act: growing.Report) -> PersistentVolumeClaim:
        written = await self._term.store.update_status(replace(growth.claim, status=act.status))
        if act.finished:
            self._term.events.record(written, RESIZE_SUCCEEDED, act.why)
        return written

    async def _wait(self, growth: growing.Growth, wait: claims.Wait) -> Result:
        claim = growth.claim
        self._wakes.wait(claim.key, growth.volume.spec.storage_class_name, growth.record.cluster.status_name)
        status = "True" if is_growing(claim) else "False"
        return await self._telling.say(claim, wait, condition=RESIZING, status=status, event=RESIZE_FAILED)
