"""On which hosts volumes are now: what was decided when they were made does not tell what has moved since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quartermaster.backends.base import Backend, hosts_now, knows_places
from quartermaster.backends.registry import installed_backends
from quartermaster.operators.looking import WrittenHealth, look
from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.gathering import views_of
from quartermaster.provisioning.intent import record_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.stores import Store
from quartermaster.support.errors import ForbiddenError, NotFoundError


async def hosts_of(store: Store, volumes: Iterable[PersistentVolume]) -> dict[str, tuple[str, ...]]:
    """By volume, as the leader would see it; where that cannot be known, as it was decided."""
    decided: dict[ClusterKey, dict[str, tuple[str, ...]]] = {}
    for volume in volumes:
        record = record_of(volume)
        if record is not None:
            decided.setdefault(record.cluster, {})[volume.metadata.name] = record.volume.placement.hosts
    known = await _hosts_now(store, decided)
    return {
        name: known.get(key, {}).get(name) or hosts for key, found in decided.items() for name, hosts in found.items()
    }


async def _hosts_now(store: Store, keys: Iterable[ClusterKey]) -> dict[ClusterKey, Mapping[str, tuple[str, ...]]]:
    """Of the clusters whose storage system says it; nobody else's are looked at."""
    backends: dict[str, Backend] = {one.type: one for one in installed_backends() if knows_places(one.volumes())}
    found: dict[ClusterKey, Mapping[str, tuple[str, ...]]] = {}
    wanted = {key for key in keys if key.type in backends}
    for namespace in sorted({key.namespace for key in wanted}):
        try:
            snapshot = await look(store, namespace, backends)
        except (ForbiddenError, NotFoundError):  # who may see volumes only gets them all the same
            continue
        views = views_of(snapshot, WrittenHealth(snapshot.hosts), tuple(backends))
        found |= {key: hosts_now(backends[key.type].volumes(), view) for key, view in views.items() if key in wanted}
    return found
