"""What plans want remembered, one ConfigMap per cluster.

It is intent: written before what it is about is done. A leader reads it once from the store itself at the beginning of
its term and from then on knows what it wrote, so a cache that is behind never makes it forget a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.releasing import is_record
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import AlreadyExistsError, NotFoundError


def memory_name(key: ClusterKey) -> str:
    return f"quartermaster-{key.status_name}"


async def read_memory(store: Store, key: ClusterKey) -> dict[str, str]:
    try:
        return dict((await store.get(ConfigMap, memory_name(key), key.namespace)).data)
    except NotFoundError:
        return {}


async def amend_memory(store: Store, key: ClusterKey, amended: Callable[[dict[str, str]], Mapping[str, str]]) -> None:
    """For whoever is no leader: a leader that knows what was there before reads it again when it writes."""

    def change(known: ConfigMap) -> ConfigMap:
        return replace(known, data=dict(amended(dict(known.data))))

    with suppress(AlreadyExistsError):
        await store.create(_object(key, {}))
    await modify(store, ConfigMap, memory_name(key), key.namespace, change)


def _object(key: ClusterKey, memory: Mapping[str, str]) -> ConfigMap:
    labels = {marks.MANAGED_BY_LABEL: marks.MANAGED_BY, marks.TYPE_LABEL: key.type, marks.CLUSTER_LABEL: key.name}
    metadata = ObjectMeta(name=memory_name(key), namespace=key.namespace, labels=labels)
    return ConfigMap(metadata=metadata, data=dict(memory))


class Memories:
    """Those of one term."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[ClusterKey, ConfigMap | None] = {}

    async def recall(self, keys: Iterable[ClusterKey]) -> Mapping[ClusterKey, dict[str, str]]:
        found: dict[ClusterKey, dict[str, str]] = {}
        for key in keys:
            if key not in self._known:
                self._known[key] = await self._read(key)
            known = self._known[key]
            found[key] = dict(known.data) if known is not None else {}
        return found

    async def save(self, key: ClusterKey, memory: Mapping[str, str]) -> None:
        known = self._known.get(key)
        if (known.data if known is not None else {}) == dict(memory):
            return
        # Whatever goes wrong below: what the store has is read again before it is relied on.
        self._known.pop(key, None)
        if known is None:
            self._known[key] = await self._store.create(_object(key, memory))
        else:
            self._known[key] = await self._store.update(replace(known, data=dict(memory)))

    async def forget(self, key: ClusterKey) -> None:
        """All but which disks were given up: who declares the cluster again may have them back."""
        memory = (await self.recall([key]))[key]
        kept = {name: value for name, value in memory.items() if is_record(name)}
        if kept:
            await self.save(key, kept)
        elif self._known.pop(key, None) is not None:
            with suppress(NotFoundError):
                await self._store.delete(ConfigMap, memory_name(key), key.namespace)
            self._known[key] = None

    async def _read(self, key: ClusterKey) -> ConfigMap | None:
        try:
            return await self._store.get(ConfigMap, memory_name(key), key.namespace)
        except NotFoundError:
            return None
