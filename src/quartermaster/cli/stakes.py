"""What is lost with a host that does not come back, for whoever is about to give it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from quartermaster.backends.base import Backend, Remains, remains_without
from quartermaster.backends.registry import installed_backends
from quartermaster.cli.statuses import is_led
from quartermaster.operators.looking import WrittenHealth, look
from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.gathering import views_of
from quartermaster.planning.matching import home_of
from quartermaster.resources.storage import StorageNode
from quartermaster.stores import Store
from quartermaster.support.errors import ForbiddenError

_NAMED = 10
_TOLD = {
    Remains.NOTHING: "lost with {}, and with what is in them",
    Remains.SILENT: "lost with {} unless other hosts that have them come back",
    Remains.DOUBTFUL: "what only {} has of them is lost, and nobody knows whether others that answer have all of it",
    Remains.WHOLE: "other hosts that answer have all of them",
}


class Stakes(msgspec.Struct, frozen=True):
    """The volumes of a cluster of which something is on one host, by their claims."""

    host: str
    volumes: Mapping[Remains, Sequence[str]] = {}
    hidden: bool = False  # whoever asks may not see volumes

    @property
    def may_be_lost(self) -> bool:
        return any(self.volumes.get(one) for one in (Remains.NOTHING, Remains.SILENT))

    def sentences(self) -> list[str]:
        if self.hidden:
            return [f"volumes cannot be seen from here: what is on {self.host} alone is lost"]
        found = [(text, self.volumes.get(one, ())) for one, text in _TOLD.items()]
        told = [f"{text.format(self.host)}: {_listed(titles)}" for text, titles in found if titles]
        return told or [f"no volume has anything on {self.host}"]


async def stakes_of(store: Store, node: StorageNode) -> Stakes:
    """By what the storage system itself knows, as the leader would see it. While nobody leads that may be old."""
    host, namespace = node.status.host, node.metadata.namespace
    key = ClusterKey(namespace, node.spec.type, home_of(node))
    backends: dict[str, Backend] = {backend.type: backend for backend in installed_backends()}
    try:
        snapshot = await look(store, namespace, backends)
    except ForbiddenError:
        return Stakes(host, hidden=True)
    view = views_of(snapshot, WrittenHealth(snapshot.hosts), (key.type,))[key]
    driver = backends[key.type].volumes() if key.type in backends else None
    is_known = await is_led(store, namespace)
    remains = remains_without(driver, view, host)
    found: dict[Remains, list[str]] = {}
    for volume in [one for one in view.volumes if one.name in remains]:
        fate = remains[volume.name]
        known = Remains.DOUBTFUL if fate is Remains.WHOLE and not is_known else fate
        found.setdefault(known, []).append(volume.title)
    return Stakes(host, {fate: tuple(sorted(titles)) for fate, titles in found.items()})


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
