"""Which volumes each cluster has handed out, kept up to date by the caches: nothing is read anew per refresh.

Volumes count by their record, and claims of which the volume is still being made by their sealed intent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from quartermaster.engine import Caches
from quartermaster.planning.cluster import ClusterKey, VolumeView
from quartermaster.provisioning.intent import Seal, open_seal
from quartermaster.provisioning.taken import handed_out_of, view_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import INTENT
from quartermaster.resources.model import Key
from quartermaster.stores.base import Store


def being_made(
    claims: Iterable[PersistentVolumeClaim], seal: Seal, namespace: str
) -> Iterator[tuple[ClusterKey, VolumeView]]:
    """What was promised to claims by the clusters of a namespace."""
    for claim in claims:
        intent = seal.read(claim)
        if intent is not None and intent.cluster.namespace == namespace:
            yield intent.cluster, replace(view_of(intent), claim=str(claim.key))


class Ledger:
    """Of one process; `attach` once, before the caches run or after."""

    def __init__(self) -> None:
        self._volumes: dict[str, tuple[ClusterKey, VolumeView]] = {}
        self._claims: dict[Key, PersistentVolumeClaim] = {}
        self._seal: Seal | None = None
        self._attached = False

    def attach(self, caches: Caches) -> None:
        if not self._attached:
            self._attached = True
            caches.of(PersistentVolume).subscribe(self._on_volume)
            caches.of(PersistentVolumeClaim).subscribe(self._on_claim)

    async def volumes(self, store: Store, namespace: str) -> dict[ClusterKey, tuple[VolumeView, ...]]:
        found: dict[ClusterKey, dict[str, VolumeView]] = {}
        if self._claims:
            # Where there are intents there is a seal; without any, none is made for a mere look.
            self._seal = self._seal or await open_seal(store, namespace)
            claims = [self._claims[key] for key in sorted(self._claims)]
            for cluster, volume in being_made(claims, self._seal, namespace):
                found.setdefault(cluster, {})[volume.name] = volume
        for name, (cluster, volume) in self._volumes.items():
            if cluster.namespace == namespace:
                found.setdefault(cluster, {})[name] = volume
        return {key: tuple(volumes.values()) for key, volumes in found.items()}

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if old is not None:
            self._volumes.pop(old.metadata.name, None)
        if new is not None:
            for entry in handed_out_of(new):
                self._volumes[new.metadata.name] = entry

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if old is not None:
            self._claims.pop(old.key, None)
        if new is not None and INTENT in new.metadata.annotations:
            self._claims[new.key] = new
