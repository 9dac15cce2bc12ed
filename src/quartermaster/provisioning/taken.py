"""What of each cluster is taken: volumes, intents, and the sizes that volumes are growing to.

Kept up by the caches, so that a decision costs no look at every volume's annotations. A cache may be behind what this
term or an earlier leader decided: such decisions are remembered until the cache shows the volume, or long enough for
a cache that is behind to be reported as stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from quartermaster.engine import Cache
from quartermaster.planning.cluster import ClusterKey, VolumeView
from quartermaster.provisioning.intent import Intent, Seal, record_of
from quartermaster.provisioning.protocol import amount, is_growing
from quartermaster.provisioning.volumes import handed_out
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.model import Key

REMEMBERED_S = 60.0


class Taken:
    """Of one term; `close` it with the term."""

    def __init__(self, claims: Cache[PersistentVolumeClaim], volumes: Cache[PersistentVolume]) -> None:
        self._volumes: dict[ClusterKey, dict[str, VolumeView]] = {}
        self._cluster_of: dict[str, ClusterKey] = {}
        self._growing: dict[str, int] = {}  # volume → size
        self._intents: dict[Key, PersistentVolumeClaim] = {}  # claims that bear one
        self._read: dict[Key, tuple[str, Intent | None]] = {}  # by the version of the claim
        self._remembered: dict[str, tuple[ClusterKey, VolumeView, float]] = {}
        self._ends: list[Callable[[], None]] = [
            volumes.subscribe(self._on_volume),
            claims.subscribe(self._on_claim),
        ]

    def close(self) -> None:
        for end in self._ends:
            end()

    def remember(self, key: ClusterKey, volume: VolumeView) -> Callable[[], None]:
        """The answer takes it back, to what was remembered before: that one may be what the store has."""
        name, before = volume.name, self._remembered.get(volume.name)
        self._remembered[name] = (key, volume, asyncio.get_running_loop().time() + REMEMBERED_S)

        def take_back() -> None:
            self.forget(name)
            if before is not None:
                self._remembered[name] = before

        return take_back

    def forget(self, name: str) -> None:
        self._remembered.pop(name, None)

    def of(self, key: ClusterKey, seal: Seal) -> tuple[VolumeView, ...]:
        """By name."""
        found: dict[str, VolumeView] = {}
        for claim in self._intents.values():
            intent = self._intent(claim, seal)
            if intent is not None and intent.cluster == key:
                found[intent.volume.name] = view_of(intent)
        found.update(self._volumes.get(key, {}))
        now = asyncio.get_running_loop().time()
        for name, (cluster, volume, until) in list(self._remembered.items()):
            if now >= until:
                del self._remembered[name]
            elif cluster == key and (name not in found or volume.size > found[name].size):
                found[name] = volume
        for name, size in self._growing.items():
            if name in found and size > found[name].size:
                found[name] = replace(found[name], size=size)
        return tuple(found[name] for name in sorted(found))

    def _intent(self, claim: PersistentVolumeClaim, seal: Seal) -> Intent | None:
        version, known = self._read.get(claim.key, ("", None))
        if version != claim.metadata.resource_version:
            known = seal.read(claim)
            self._read[claim.key] = (claim.metadata.resource_version, known)
        return known

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None:
            name = old.metadata.name
            cluster = self._cluster_of.pop(name, None)
            if cluster is not None:
                self._volumes[cluster].pop(name, None)
        for cluster, volume in handed_out_of(new) if new is not None else ():
            self._volumes.setdefault(cluster, {})[volume.name] = volume
            self._cluster_of[volume.name] = cluster
            remembered = self._remembered.get(volume.name)
            if remembered is not None and remembered[1].size <= volume.size:
                del self._remembered[volume.name]

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if old is not None:
            self._intents.pop(old.key, None)
            self._growing.pop(old.spec.volume_name, None)
        if new is None:
            if old is not None:
                self._read.pop(old.key, None)
            return
        if INTENT in new.metadata.annotations:
            self._intents[new.key] = new
        if is_growing(new):
            self._growing[new.spec.volume_name] = amount(new.status.allocated_resources)


def view_of(intent: Intent) -> VolumeView:
    placement = intent.volume.placement
    return VolumeView(intent.volume.name, intent.volume.size, placement.hosts, dict(placement.details))


def handed_out_of(volume: PersistentVolume) -> Iterator[tuple[ClusterKey, VolumeView]]:
    record = record_of(volume)
    if record is not None:
        for one in handed_out(record.cluster, [volume], ()):
            yield record.cluster, one
