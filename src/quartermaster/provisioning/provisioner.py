"""Carries out what `claims` decides: one claim, one act after the other.

A claim that bears an intent is read from the store and not from the cache: its finalizer is ours, so what it says there
is what was begun and not finished. Every other write names the version that was read.
"""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.backends.assigning import is_gone
from quartermaster.engine import DONE, Request, Result
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning import claims
from quartermaster.provisioning.expander import Expander
from quartermaster.provisioning.holds import held
from quartermaster.provisioning.intent import Intent, has_trace, put_aside, record_of, taken_up, without_intent
from quartermaster.provisioning.protocol import (
    PROVISIONED,
    PROVISIONING,
    PROVISIONING_FAILED,
    PROVISIONING_SUCCEEDED,
    SELECTED_NODE,
    cluster_of,
    provisioner_for,
    refers_to,
    volume_name,
    with_annotations,
)
from quartermaster.provisioning.taken import view_of
from quartermaster.provisioning.telling import LOOK_AGAIN, Telling
from quartermaster.provisioning.term import Term, Wakes
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import LEFT
from quartermaster.resources.model import Key
from quartermaster.support.errors import AlreadyExistsError, NotFoundError, UnavailableError

_SOON = Result(requeue_after_s=1.0)
_STEPS = 8  # more than any claim takes at once
# What is not done while the cluster is held. A volume that is there is settled all the same: that only forgets.
_HELD = (claims.Make, claims.Publish, claims.Undo)


class Provisioner:
    """The reconciler of claims; one for each term."""

    def __init__(self, term: Term, wakes: Wakes) -> None:
        self._term = term
        self._wakes = wakes
        self._telling = Telling(term)
        self._expander = Expander(term, wakes, self._telling)

    async def reconcile(self, request: Request) -> Result:
        claim = self._term.claims.get(request)
        if claim is None:
            self._forget(request)
            return DONE
        if has_trace(claim):
            try:
                claim = await self._term.store.get(PersistentVolumeClaim, request.name, request.namespace)
            except NotFoundError:
                self._forget(request)
                return DONE
        seal = await self._term.seal()
        seal.check(claim)
        intent = seal.read(claim) if has_trace(claim) else None
        if intent is None and has_trace(claim):
            left = seal.read(claim, LEFT)
            if left is not None and claims.unwanted(claim, left):
                claim, intent = await self._term.store.update(taken_up(claim)), left
        if intent is not None:
            return await self._go_on(claim, intent)
        if claim.spec.volume_name and not has_trace(claim):
            return await self._expander.reconcile(claim)
        return await self._begin(claim)

    async def _begin(self, claim: PersistentVolumeClaim) -> Result:
        key = self._cluster_of(claim)
        if key is None:
            return DONE
        driver = self._term.setup.drivers[key.type]
        volume = self._term.volumes.get(Key("", volume_name(claim)))
        if volume is not None and not has_trace(claim):
            return DONE  # it waits to be bound, as most do when they come here: all that is taken need not be added up
        async with self._term.placing(key):
            view = await self._term.view(key)
            if view is not None and self._term.is_behind(view):
                return _SOON
            situation = claims.Situation(
                claim=claim,
                storage_class=self._term.classes.get(Key("", claim.spec.storage_class_name or "")),
                volume=volume,
                view=view,
                labels=self._term.host_labels(),
                scheduled=self._term.setup.scheduled,
            )
            act = claims.next_act(situation, driver)
            if isinstance(act, claims.Record) and await self._published(act.intent) is not None:
                # It was finished, and the cache shows the claim without its intent before it shows the volume.
                return LOOK_AGAIN
            if not isinstance(act, claims.Record):
                return await self._rest(claim, act, waits_for=(claim.spec.storage_class_name or "", key.status_name))
            claim = await self._record(claim, act)
        return await self._go_on(claim, act.intent)

    def _cluster_of(self, claim: PersistentVolumeClaim) -> ClusterKey | None:
        """The cluster of ours that is asked; None where it is somebody else's matter."""
        if provisioner_for(claim) not in self._term.setup.provisioners:
            return None
        storage_class = self._term.classes.get(Key("", claim.spec.storage_class_name or ""))
        if storage_class is None or storage_class.provisioner != provisioner_for(claim):
            return None
        key = cluster_of(storage_class, claim)
        return key if self._term.setup.serves(key) else None

    async def _record(self, claim: PersistentVolumeClaim, act: claims.Record) -> PersistentVolumeClaim:
        intent = act.intent
        take_back = self._term.taken.remember(intent.cluster, view_of(intent))
        try:
            written = await self._term.store.update((await self._term.seal()).write(claim, intent))
        except UnavailableError:
            raise  # it may be written: what it takes stays taken until that is known
        except Exception:
            take_back()  # a cache may have shown a claim without the intent that it has: that one is still taken
            raise
        hosts = ", ".join(intent.volume.placement.hosts)
        self._term.events.record(written, PROVISIONING, f"making the volume {intent.volume.name} on {hosts}: {act.why}")
        return written

    async def _go_on(self, claim: PersistentVolumeClaim, intent: Intent) -> Result:
        if not self._term.setup.serves(intent.cluster):
            return DONE
        driver = self._term.setup.drivers[intent.cluster.type]
        self._wakes.expect(intent.volume.name, claim.key)
        desired = driver.desired(intent.volume)
        situation = claims.Situation(
            claim=claim,
            intent=intent,
            volume=self._term.volumes.get(Key("", intent.volume.name)),
            assignment=self._term.assigning.get(desired.host, desired.agent, desired.instance),
            view=self._term.setup.views(intent.cluster),
        )
        for _ in range(_STEPS):
            act = await self._unless_held(claims.next_act(situation, driver), intent.cluster)
            if isinstance(act, claims.Make):
                situation = replace(situation, assignment=await self._term.assigning.ensure(act.desired))
            elif isinstance(act, claims.Publish):
                # Whoever asked for it to be gone may never have heard that this was written: it would still go.
                told = await self._term.assigning.latest(desired.host, desired.agent, desired.instance)
                if told != situation.assignment:
                    situation = replace(situation, assignment=told)
                    continue
                published = await self._publish(act.volume, claim)
                if published is None:
                    why = f"there is a volume {intent.volume.name} that is not of this claim"
                    return await self._rest(claim, claims.Wait("VolumeNameTaken", why, failed=True))
                situation = replace(situation, volume=published)
            elif isinstance(act, claims.Settle):
                return await self._settle(claim, intent)
            elif isinstance(act, claims.Undo):
                published = await self._published(intent)
                if published is None:
                    return await self._undo(claim, intent, act)
                situation = replace(situation, volume=published)
            else:
                return await self._rest(claim, act, waits_for=(intent.cluster.status_name,))
        return LOOK_AGAIN

    async def _unless_held(self, act: claims.Act, key: ClusterKey) -> claims.Act:
        why = await held(self._term.store, key) if isinstance(act, _HELD) else ""
        return claims.Wait(claims.PAUSED, why) if why else act

    async def _publish(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        try:
            return await self._term.store.create(volume)
        except AlreadyExistsError:
            there = await self._term.store.get(PersistentVolume, volume.metadata.name)
            return there if refers_to(there, claim) and record_of(there) == record_of(volume) else None

    async def _published(self, intent: Intent) -> PersistentVolume | None:
        """Asked of the store, before anything is begun and before anything is taken back."""
        try:
            return await self._term.store.get(PersistentVolume, intent.volume.name)
        except NotFoundError:
            return None

    async def _settle(self, claim: PersistentVolumeClaim, intent: Intent) -> Result:
        written = await self._term.store.update(without_intent(claim))
        self._term.events.record(claim, PROVISIONING_SUCCEEDED, f"made the volume {intent.volume.name}")
        self._forget(claim.key, intent.volume.name)
        if written.metadata.finalizers or not written.metadata.deletion_timestamp:
            await self._telling.unsay(written, PROVISIONED)
        return DONE

    async def _undo(self, claim: PersistentVolumeClaim, intent: Intent, act: claims.Undo) -> Result:
        lost = act.lost or self._term.is_given_up(intent.cluster, act.desired.host)
        asked = self._term.assigning.get(act.desired.host, act.desired.agent, act.desired.instance)
        answered = act.desired.host if asked is not None and is_gone(asked) else ""
        if not await self._term.take_back(act.desired, lost=lost, made=False):
            return LOOK_AGAIN
        # Where any host can keep a volume, one that was lost while it made it may have left it to the others.
        left = None if act.anew else await self._term.end(intent.cluster, intent.volume, answered=answered)
        if left is not None:
            return await self._rest(claim, left, waits_for=(intent.cluster.status_name,))
        await self._term.store.update(put_aside(claim) if act.anew else without_intent(claim))
        self._term.taken.forget(intent.volume.name)
        self._term.events.record(claim, PROVISIONING, f"took back the volume {intent.volume.name}: {act.why}")
        self._forget(claim.key, intent.volume.name)
        return DONE

    async def _rest(self, claim: PersistentVolumeClaim, act: claims.Act, *, waits_for: tuple[str, ...] = ()) -> Result:
        """The acts after which nothing else is to be done now."""
        match act:
            case claims.Nothing():
                return DONE
            case claims.Quiet():
                return LOOK_AGAIN
            case claims.Release():
                await self._term.store.update(without_intent(claim))
                return DONE
            case claims.Reschedule():
                await self._term.store.update(with_annotations(claim, {SELECTED_NODE: ""}))
                self._term.events.record(claim, PROVISIONING_FAILED, act.why, type="Warning")
                return DONE
            case claims.Wait():
                self._wakes.wait(claim.key, *waits_for)
                return await self._telling.say(
                    claim, act, condition=PROVISIONED, status="False", event=PROVISIONING_FAILED
                )
        raise AssertionError(f"not an act to rest on: {act}")

    def _forget(self, claim: Key, volume: str = "") -> None:
        self._wakes.forget(claim, volume)
        self._telling.forget(claim)
