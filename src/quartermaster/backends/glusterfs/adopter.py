"""A GlusterFS pool that was found, as what `qm adopt` writes of it: nodes, volumes, and what agents are told of both.

The assignments of nodes are written with them: it is these that make a disk with our file system one in use and not one
with foreign data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import AdoptedVolume, Adoption, Volume
from quartermaster.backends.glusterfs.adopting import FoundNode, FoundPool, FoundVolume, describe, find
from quartermaster.backends.glusterfs.facts import NODE, VOLUME, read_memory, write_memory
from quartermaster.backends.glusterfs.keeping import volume_config
from quartermaster.backends.glusterfs.seeing import owner_of
from quartermaster.backends.glusterfs.survey import SURVEY, Survey
from quartermaster.planning.cluster import ClusterKey, Desired
from quartermaster.resources.codec import from_document
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.storage import DEFAULT_CLUSTER, StorageNode

_DEADLINE_S = 180.0


class GlusterAdopter:
    survey = SURVEY

    def adopt(
        self,
        told: Mapping[str, Mapping[str, Any]],
        namespace: str,
        *,
        cluster: str = "",
        lost: Sequence[str] = (),
        addresses: Mapping[str, Sequence[str]],
    ) -> Adoption:
        surveys = {host: msgspec.convert(one, Survey) for host, one in told.items()}
        return adoption_of(find(surveys, namespace, cluster=cluster, lost=lost, addresses=addresses))

    def remember(self, memory: Mapping[str, str], found: Adoption) -> dict[str, str]:
        """Who is a member and no node is let go as soon as none of its bricks is left."""
        known = read_memory(memory)
        return {**memory, **write_memory(replace(known, members={**found.given_up, **known.members}))}


def adoption_of(pool: FoundPool) -> Adoption:
    return Adoption(
        pool.key,
        nodes=tuple(_storage_node(pool.key, node) for node in pool.nodes),
        volumes=tuple(AdoptedVolume(Volume(one.name, one.size, one.placement), one.claim) for one in pool.volumes),
        assignments=(
            *(_keeping(volume) for volume in pool.volumes),
            *(_serving(pool.key, node) for node in pool.nodes),
        ),
        given_up=pool.given_up,
        shown=tuple(describe(pool)),
        mistakes=pool.mistakes,
        notes=pool.notes,
    )


def _keeping(volume: FoundVolume) -> Desired:
    keeper = volume.placement.hosts[0]
    config = volume_config(volume.name, volume.size, volume.placement.details, keeper, existing=True)
    return Desired(keeper, VOLUME, config, volume.name, deadline_s=_DEADLINE_S)


def _serving(key: ClusterKey, node: FoundNode) -> Desired:
    devices = [{"id": one.id, "uuid": one.uuid, "path": one.path, "declared": one.path} for one in node.disks]
    directories = list(node.directories)
    config: dict[str, Any] = {
        "owner": owner_of(key),
        "node": node.name,
        "devices": devices,
        "directories": directories,
    }
    if node.tls:
        config["tls"] = True
    if directories:
        config["adopted"] = directories
    return Desired(node.host, NODE, config, deadline_s=_DEADLINE_S)


def _storage_node(key: ClusterKey, node: FoundNode) -> StorageNode:
    spec: dict[str, Any] = {"type": key.type, "nodeSelector": {HOSTNAME_LABEL: node.host}}
    if node.disks:
        spec["devices"] = [disk.path for disk in node.disks]
    if node.directories:
        spec["directories"] = list(node.directories)
    if node.addresses:
        spec["storageNetwork"] = {"ips": list(node.addresses)}
    if key.name != DEFAULT_CLUSTER:
        spec["glusterfs"] = {"cluster": key.name}
    return from_document(StorageNode, {"metadata": {"name": node.name, "namespace": key.namespace}, "spec": spec})
