"""Looks for volumes that nobody refers to, and for volumes that nobody keeps: what no rule should ever let happen.

A store put back from a backup, a finalizer taken off by hand, a volume that was kept and whose object was deleted: all
of them leave something behind. It is told. Only what provably nobody was ever given is taken away by itself: an
assignment that has never succeeded, of a claim that is not there. Whatever may hold data stays until a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from quartermaster.backends.base import Volume, desired_now
from quartermaster.engine import Caches, Scope
from quartermaster.engine.waiting import first_of
from quartermaster.planning.cluster import ClusterKey, Desired
from quartermaster.provisioning.holds import any_held
from quartermaster.provisioning.intent import Intent, record_of
from quartermaster.provisioning.protocol import BOUND, ORPHANED_VOLUME
from quartermaster.provisioning.term import Setup, Term, Terms
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.support.deadlines import within
from quartermaster.support.errors import FencedError, QuartermasterError
from quartermaster.support.log import logger

VOLUME_PREFIX = "pvc-"

_log = logger("provisioning.orphans")


class Orphan(msgspec.Struct, frozen=True):
    """`retire`: nobody was ever given it. `clear`: it was taken back, only the asking is left. `tell`: ask a person."""

    name: str
    verdict: Literal["retire", "clear", "tell"]
    why: str
    assignment: Assignment | None = None
    volume: PersistentVolume | None = None


def find_orphans(
    setup: Setup,
    assignments: Iterable[Assignment],
    claims: Iterable[PersistentVolumeClaim],
    intents: Iterable[Intent],
    volumes: Sequence[PersistentVolume],
) -> tuple[Orphan, ...]:
    """Pure; read from the store in the order of the arguments, so that what comes later refers to what came before."""
    published = {volume.metadata.name: record_of(volume) for volume in volumes}
    meant = [(intent.cluster, intent.volume) for intent in intents]
    meant += [(record.cluster, record.volume) for record in published.values() if record is not None]
    referred = {_place(setup, key, volume) for key, volume in meant if setup.serves(key)}
    uids = {claim.metadata.uid for claim in claims}
    kept: set[str] = set()
    found: list[Orphan] = []
    for assignment in assignments:
        name = assignment.spec.instance
        if not name.startswith(VOLUME_PREFIX) or assignment.spec.agent not in setup.agents:
            continue
        kept.add(name)
        if (assignment.spec.host, name) not in referred:
            known = name in published or name.removeprefix(VOLUME_PREFIX) in uids
            found.append(_unreferenced(assignment, known))
    for volume in volumes:
        record = published[volume.metadata.name]
        if record is None or not setup.serves(record.cluster) or volume.metadata.name in kept:
            continue
        if volume.status.phase == BOUND:
            why = "no assignment keeps it: nobody looks after it"
            found.append(Orphan(volume.metadata.name, "tell", why, volume=volume))
    return tuple(sorted(found, key=lambda orphan: orphan.name))


def _place(setup: Setup, key: ClusterKey, volume: Volume) -> tuple[str, str]:
    return desired_now(setup.drivers[key.type], volume, setup.views(key)).host, volume.name


def _unreferenced(assignment: Assignment, known: bool) -> Orphan:
    name, host = assignment.spec.instance, assignment.spec.host
    if assignment.spec.absent:
        return Orphan(name, "clear", f"it was taken back from {host}", assignment)
    if known:
        return Orphan(name, "tell", f"its claim or volume knows nothing of {host}, where it is too", assignment)
    if assignment.status.state == SUCCEEDED or assignment.status.result:
        return Orphan(
            name, "tell", f"no volume and no claim refers to it; it is on {host} and may hold data", assignment
        )
    return Orphan(name, "retire", f"its claim is gone, and it was never finished on {host}", assignment)


class OrphanScan:
    """A service: at the beginning of a term, and every so often."""

    name = "orphans"

    def __init__(self, terms: Terms, *, every_s: float) -> None:
        self._terms = terms
        self._every_s = every_s

    def prepare(self, caches: Caches) -> None:
        """It reads from the store: what seems to be left over must not be so only in a cache."""

    async def run(self, scope: Scope) -> None:
        term = self._terms.of(scope)
        told: dict[str, str] = {}
        while not scope.stopping.is_set():
            await first_of(scope.stopping, timeout_s=self._every_s)
            if scope.stopping.is_set():
                return
            try:
                async with within(self._every_s):
                    told = await self._scan(term, told)
            except FencedError:
                raise
            except (QuartermasterError, TimeoutError) as error:
                _log.info("orphan scan failed", error=f"{type(error).__name__}: {error}")

    async def _scan(self, term: Term, told: dict[str, str]) -> dict[str, str]:
        said: dict[str, str] = {}
        found = await scan(term)
        # Taking one back writes its assignment anew, and with that it is not a restored one any more.
        why = await any_held(term.store, term.setup.namespace) if found else ""
        for orphan in found:
            if orphan.verdict == "tell":
                said[orphan.name] = orphan.why
                if told.get(orphan.name) != orphan.why:
                    self._tell(term, orphan)
            elif orphan.assignment is not None and not why:
                spec = orphan.assignment.spec
                await term.take_back(Desired(spec.host, spec.agent, None, spec.instance), lost=False, made=False)
        return said

    def _tell(self, term: Term, orphan: Orphan) -> None:
        _log.warning("orphaned volume", volume=orphan.name, why=orphan.why)
        about: Object | None = orphan.assignment if orphan.assignment is not None else orphan.volume
        if about is not None:
            term.events.record(about, ORPHANED_VOLUME, orphan.why, type="Warning")


async def scan(term: Term) -> tuple[Orphan, ...]:
    """The assignments first: one that is made after that is nobody's orphan yet."""
    setup, store = term.setup, term.store
    assignments = (await store.list(Assignment, setup.namespace)).items
    claims = (await store.list(PersistentVolumeClaim)).items
    volumes = (await store.list(PersistentVolume)).items
    seal = await term.seal()
    intents = [seal.read(claim) for claim in claims if INTENT in claim.metadata.annotations]
    return find_orphans(setup, assignments, claims, [one for one in intents if one is not None], volumes)
