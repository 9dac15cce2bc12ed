"""Whether anything may be done about volumes at all: a person has paused the cluster, or the store was restored.

Asked of the store itself, right before an agent is told something. What the leader saw of a cluster is no answer: at
the beginning of a term it has seen nothing yet, and of a cluster that nobody declares any more it sees nothing at all.
"""

from __future__ import annotations

from quartermaster.planning.cluster import ClusterKey, ClusterView
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.marks import OBSERVE_ONLY, PAUSED, SETTINGS_NAME
from quartermaster.resources.storage import StorageStatus
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError

_RESTORED = "after a restore nothing is done until `qm resume`"


def hold_of(view: ClusterView) -> str:
    """As far as the leader has seen the cluster; "" where nothing holds it."""
    if view.settings.observing:
        return _RESTORED
    return _paused(view.key.status_name) if view.settings.paused else ""


async def observing(store: Store, namespace: str) -> str:
    """Why the operator of a namespace only looks; "" if it acts."""
    try:
        settings = await store.get(ConfigMap, SETTINGS_NAME, namespace)
    except NotFoundError:
        return ""
    if OBSERVE_ONLY not in settings.metadata.annotations:
        return ""
    return _RESTORED


async def held(store: Store, key: ClusterKey) -> str:
    """Why nothing is done about the volumes of a cluster; "" if something may be."""
    try:
        status = await store.get(StorageStatus, key.status_name, key.namespace)
    except NotFoundError:
        status = None
    if status is not None and PAUSED in status.metadata.annotations:
        return _paused(status.metadata.name)
    return await observing(store, key.namespace)


async def any_held(store: Store, namespace: str) -> str:
    """For what cannot be told to be of one cluster: why nothing is done in any of them."""
    for status in (await store.list(StorageStatus, namespace)).items:
        if PAUSED in status.metadata.annotations:
            return _paused(status.metadata.name)
    return await observing(store, namespace)


def _paused(name: str) -> str:
    return f"the storage cluster {name} is paused; `qm resume {name}` goes on"
