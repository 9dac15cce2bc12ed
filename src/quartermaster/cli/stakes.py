"""What is lost with a host that does not come back, for whoever is about to give it up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.planning.cluster import ClusterKey
from quartermaster.planning.health import READY
from quartermaster.planning.matching import home_of
from quartermaster.provisioning.intent import record_of
from quartermaster.resources import marks
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.orchestration import Host
from quartermaster.resources.storage import StorageNode
from quartermaster.stores import Store
from quartermaster.support.errors import ForbiddenError

_NAMED = 10


class Stakes(msgspec.Struct, frozen=True):
    """The volumes of a cluster that were placed on one host, by their claims."""

    host: str
    alone: tuple[str, ...] = ()  # they are nowhere else
    silent: tuple[str, ...] = ()  # they are elsewhere too, and nobody there answers
    copied: tuple[str, ...] = ()
    moved: bool = False  # other volumes have several copies, and one may have moved here since
    hidden: bool = False  # whoever asks may not see volumes

    def sentences(self) -> list[str]:
        if self.hidden:
            return [f"volumes cannot be seen from here: what is on {self.host} alone is lost"]
        told = []
        if self.alone:
            told.append(f"lost with {self.host}, and with what is in them: {_listed(self.alone)}")
        if self.silent:
            told.append(f"lost with {self.host} unless another host that has them comes back: {_listed(self.silent)}")
        if self.copied:
            told.append(f"other hosts that answer have them too: {_listed(self.copied)}")
        none = f"no volume was placed on {self.host}"
        return told or [f"{none}; copies of others may have moved to it since" if self.moved else none]


async def stakes_of(store: Store, node: StorageNode) -> Stakes:
    host, namespace = node.status.host, node.metadata.namespace
    key = ClusterKey(namespace, node.spec.type, home_of(node))
    try:
        volumes = (await store.list(PersistentVolume)).items
    except ForbiddenError:
        return Stakes(host, hidden=True)
    answering = await _answering(store, node)
    alone: list[str] = []
    silent: list[str] = []
    copied: list[str] = []
    moved = False
    for volume in volumes:
        record = record_of(volume)
        if record is None or record.cluster != key:
            continue
        others = set(record.volume.placement.hosts) - {host}
        if host in record.volume.placement.hosts:
            fate = alone if not others else copied if others & answering else silent
            fate.append(_title(volume))
        else:
            moved = moved or len(others) > 1
    return Stakes(host, tuple(sorted(alone)), tuple(sorted(silent)), tuple(sorted(copied)), moved=moved)


async def _answering(store: Store, node: StorageNode) -> set[str]:
    """The hosts of other nodes, as far as they live and are not to be given up."""
    namespace = node.metadata.namespace
    living = {one.metadata.name for one in (await store.list(Host, namespace)).items if one.status.state == READY}
    others = (await store.list(StorageNode, namespace)).items
    kept = {one.status.host for one in others if marks.ABANDON not in one.metadata.annotations}
    return living & kept


def _title(volume: PersistentVolume) -> str:
    claim = volume.spec.claim_ref
    return f"{claim.namespace}/{claim.name}" if claim is not None else volume.metadata.name


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
