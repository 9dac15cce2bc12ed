"""Volumes that are directories. Their sizes are added up and promised once, but nothing stops a writer at his."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quartermaster.backends.base import Placement, Refusal, Volume, VolumeRequest
from quartermaster.backends.binding import bind_volume, is_bound, unbind_volume
from quartermaster.backends.local.agents import NodeAgent, VolumeAgent
from quartermaster.host import Host
from quartermaster.planning.cluster import ClusterView, Desired, Verdict
from quartermaster.planning.offering import BASE
from quartermaster.planning.placing import most_room, rooms_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.marks import HOSTNAME_LABEL


class LocalVolumes:
    def place(self, request: VolumeRequest, view: ClusterView) -> Placement | Refusal:
        if request.block or "ReadWriteMany" in request.access_modes:
            return Refusal("NotSupported", "a volume here is a directory on one host: neither Block nor ReadWriteMany")
        rooms = rooms_of(view, NodeAgent.name, view.key.name, without=request.name)
        fixed = request.current
        host, base = (fixed.hosts[0], fixed.details[BASE]) if fixed is not None else (request.host, "")
        room = most_room(rooms, request.size, host=host, base=base)
        if isinstance(room, Verdict):
            return Refusal(room.reason, room.message)
        details = {BASE: room.base, "hostname": room.node.labels.get(HOSTNAME_LABEL, room.node.host)}
        return Placement((room.node.host,), details, f"node {room.node.name} has the most room, in {room.base}")

    def desired(self, volume: Volume) -> Desired:
        path = f"{volume.placement.details[BASE]}/{volume.name}"
        return Desired(volume.placement.hosts[0], VolumeAgent.name, {"path": path}, volume.name)

    def source(self, volume: Volume, result: Mapping[str, Any]) -> dict[str, Any]:
        here = {"key": HOSTNAME_LABEL, "operator": "In", "values": [volume.placement.details["hostname"]]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
        return {"local": {"path": result["path"]}, "nodeAffinity": affinity}

    async def mount(self, machine: Host, volume: PersistentVolume, target: Path) -> Path:
        return await bind_volume(machine, volume, _path(volume), target)

    def is_mounted(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        return is_bound(machine, volume, _path(volume), target)

    async def unmount(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        return await unbind_volume(machine, volume, _path(volume), target)


def _path(volume: PersistentVolume) -> str:
    return volume.spec.local.path if volume.spec.local is not None else ""
