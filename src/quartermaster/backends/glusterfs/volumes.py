"""Volumes of GlusterFS: where their bricks go, and how a host mounts one. gluster itself enforces their size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Refusal, Remains, Volume, VolumeRequest
from quartermaster.backends.glusterfs.bounds import why_no_volume
from quartermaster.backends.glusterfs.encryption import VOLUME_OPTIONS, refuse_without_tls, uses_tls
from quartermaster.backends.glusterfs.facts import SERVERS, TYPE, VOLUME, BrickPlace
from quartermaster.backends.glusterfs.keeping import FORGET, is_making, keeper_of, reports_of, volume_config
from quartermaster.backends.glusterfs.layouts import Room, choose_rooms, layout_of
from quartermaster.backends.glusterfs.remaining import hosts_now, remains_without
from quartermaster.backends.glusterfs.seeing import (
    DEAD,
    Seen,
    brick_state,
    bricks_of,
    layout_in,
    owner_of,
    rooms_of,
    see,
    share_of,
)
from quartermaster.backends.unmounting import IsVolume, is_there, unmount_volume
from quartermaster.host import Host
from quartermaster.host.mountinfo import mounted_at
from quartermaster.host.mounts import canonical
from quartermaster.planning.capacity import shown
from quartermaster.planning.cluster import ABANDON, DRAIN, ClusterView, Desired, Verdict, VolumeView
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.marks import provisioner_of
from quartermaster.resources.storage import StorageStatus
from quartermaster.support.errors import HostError, MountConflictError

_FILE_SYSTEMS = ("fuse.glusterfs", "glusterfs")
# How long a writer waits for a host that is cut off. Less, and a busy host is taken for a dead one.
PING_TIMEOUT_S = 10
_LEAST_SIZE = 16 << 20
_SERVER_QUORUM_FROM = 3  # with fewer nodes the loss of one would stop the other
_MAKING_S = 300.0


class GlusterVolumes:
    def place(self, request: VolumeRequest, view: ClusterView) -> Placement | Refusal:
        if request.block:
            return Refusal("NotSupported", "a GlusterFS volume is a file system: volumeMode Block is not supported")
        if request.size < _LEAST_SIZE:
            return Refusal("TooSmall", f"{shown(request.size)} were asked for, and the least is {shown(_LEAST_SIZE)}")
        seen = see(view)
        if request.current is not None:
            return _grown(request, request.current, seen)
        if full := why_no_volume(seen):
            return Refusal("TooManyVolumes", full)
        layout = layout_of(view.settings.replication)
        declared = [node.zone for node in view.nodes if node.leaving not in (DRAIN, ABANDON)]
        chosen = choose_rooms(rooms_of(seen, without=request.name), layout, request.size, declared)
        if isinstance(chosen, Verdict):
            return Refusal(chosen.reason, chosen.message)
        details = {
            "owner": owner_of(view.key),
            "layout": msgspec.to_builtins(layout),
            "bricks": [msgspec.to_builtins(_place(room, request.name, chosen, at)) for at, room in enumerate(chosen)],
            "options": _options(view, request, owner_of(view.key)),
        }
        hosts = tuple(dict.fromkeys(room.host for room in chosen))
        zones = sorted({room.zone for room in chosen})
        where = f"in zones {', '.join(map(str, zones))}" if len(zones) > 1 else "with the most room"
        nodes = ", ".join(dict.fromkeys(room.node for room in chosen))
        return Placement(hosts, details, f"{layout.text} on nodes {nodes}, {where}")

    def desired(self, volume: Volume) -> Desired:
        return self._desired(volume, volume.placement.hosts[0], existing=False)

    def _desired(self, volume: Volume, host: str, *, existing: bool) -> Desired:
        config = volume_config(volume.name, volume.size, volume.placement.details, host, existing=existing)
        return Desired(host, VOLUME, config, volume.name, deadline_s=_MAKING_S)

    def desired_now(self, volume: Volume, view: ClusterView) -> Desired:
        """Asked of the host that keeps it now: the one that made it may be gone. Any other one is to make nothing: an
        empty volume in the place of one that is gone would hide that its files are lost.
        """
        host = keeper_of(volume.name, volume.placement.hosts, view)
        made_here = any(node.host == host and is_making(report) for node, report in reports_of(view, volume.name))
        return self._desired(volume, host, existing=not made_here)

    def let_go(self) -> dict[str, Any]:
        return FORGET

    def lost_with(self, volume: Volume, view: ClusterView) -> str:
        """A disk may die before a brick is made on it."""
        seen = see(view)
        states = [brick_state(seen, BrickPlace(**one)) for one in volume.placement.details["bricks"]]
        return next((why for state, why in states if state == DEAD), "")

    def remains(self, view: ClusterView, host: str) -> Mapping[str, Remains]:
        return remains_without(view, host)

    def hosts_now(self, view: ClusterView) -> Mapping[str, tuple[str, ...]]:
        return hosts_now(view)

    def source(self, volume: Volume, result: Mapping[str, Any]) -> dict[str, Any]:
        servers = ",".join(dict.fromkeys(brick["address"] for brick in volume.placement.details["bricks"]))
        attributes = {"type": TYPE, "volume": result["volume"], "servers": servers}
        if VOLUME_OPTIONS.items() <= volume.placement.details["options"].items():
            attributes["tls"] = "true"
        return {"csi": {"driver": provisioner_of(TYPE), "volumeHandle": volume.name, "volumeAttributes": attributes}}

    def served_now(self, volume: PersistentVolume, status: StorageStatus) -> PersistentVolume:
        """By those first that are in the pool now: of the hosts that it was made on none may be left."""
        csi, section = volume.spec.csi, status.spec.glusterfs
        now = (section.details.get(SERVERS, "") if section is not None else "").split(", ")
        if csi is None or not any(now):
            return volume
        servers = ",".join(dict.fromkeys([*now, *_servers_of(csi.volume_attributes)]))
        attributes = {**csi.volume_attributes, "servers": servers}
        return replace(volume, spec=replace(volume.spec, csi=replace(csi, volume_attributes=attributes)))

    async def mount(self, machine: Host, volume: PersistentVolume, target: Path) -> Path:
        attributes = volume.spec.csi.volume_attributes if volume.spec.csi is not None else {}
        servers = _servers_of(attributes)
        if not servers:
            raise HostError(f"cannot mount {volume.metadata.name}: it does not say where its servers are")
        table = machine.mounts.table()
        present = mounted_at(table, canonical(table, str(target)))
        if present is not None and _is_mount_of(volume)(table, present):
            return target
        if present is not None:
            raise MountConflictError(
                f"cannot mount {volume.metadata.name} on {target}: {present.source} is mounted there",
                hint=f"unmount it first, or choose another directory than {target}",
            )
        if attributes.get("tls") == "true":
            await refuse_without_tls(machine, volume.metadata.name)
        options = [f"backup-volfile-servers={':'.join(servers[1:])}"] if servers[1:] else []
        options += list(volume.spec.mount_options)
        source = f"{servers[0]}:/{attributes['volume']}"
        await machine.mounts.mount(source, str(target), type=TYPE, options=options, protect=True)
        return target

    def is_mounted(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        return is_there(machine, target, _is_mount_of(volume))

    async def unmount(self, machine: Host, volume: PersistentVolume, target: Path) -> bool:
        return await unmount_volume(machine, volume.metadata.name, target, _is_mount_of(volume))


def _servers_of(attributes: Mapping[str, str]) -> list[str]:
    return [one for one in attributes.get("servers", "").split(",") if one]


def _is_mount_of(volume: PersistentVolume) -> IsVolume:
    """From whichever server: any of them gives all of it. A directory of it that somebody has bound is not it."""
    attributes = volume.spec.csi.volume_attributes if volume.spec.csi is not None else {}
    path = f":/{attributes.get('volume') or volume.metadata.name}"
    return lambda _, mount: mount.type in _FILE_SYSTEMS and mount.source.endswith(path) and mount.root == "/"


def _place(room: Room, volume: str, chosen: tuple[Room, ...], at: int) -> BrickPlace:
    """Two sets of a volume may share a directory: each brick has one of its own."""
    before = sum((one.host, one.base) == (room.host, room.base) for one in chosen[:at])
    path = f"{room.base}/{volume}" + (f".s{before}" if before else "")
    return BrickPlace(room.node, room.host, room.address, room.base, path)


def _options(view: ClusterView, request: VolumeRequest, owner: str) -> dict[str, str]:
    options = {
        "network.ping-timeout": str(PING_TIMEOUT_S),
        # gluster pings only when the last answer is older than its timeout, so by that alone it may take twice as long.
        "client.tcp-user-timeout": str(PING_TIMEOUT_S),
        "auth.allow": allowed_clients(view),
        "user.quartermaster.owner": owner,
        "user.quartermaster.claim": f"{request.namespace}/{request.claim}",
    }
    if len(view.nodes) >= _SERVER_QUORUM_FROM:
        options["cluster.server-quorum-type"] = "server"
    return {**options, **VOLUME_OPTIONS} if uses_tls(view) else options


def allowed_clients(view: ClusterView) -> str:
    """The hosts that may mount volumes, by address."""
    addresses = [address for node in view.nodes for address in node.addresses]
    return ",".join(sorted({*addresses, *view.clients})) or "none"


def _grown(request: VolumeRequest, current: Placement, seen: Seen) -> Placement | Refusal:
    """Every brick has to have room where it is: it may have moved since the volume was made."""
    layout = layout_in(current.details)
    placed = VolumeView(request.name, request.size, current.hosts, current.details)
    places = bricks_of(placed, seen.memory.moves.get(request.name))
    rooms = {(room.host, room.base): room for room in rooms_of(seen, without=request.name)}
    for at, place in enumerate(places):
        need, room = share_of(layout, request.size, len(places), at), rooms.get((place.host, place.base))
        if room is None:
            return Refusal("NodeNotReady", f"node {place.node}, which has a part of it, is not ready")
        if room.free < need:
            message = f"{shown(request.size)} were asked for, {shown(need)} of them on node {place.node}"
            return Refusal("NoSpace", f"{message}, which has room for {shown(max(room.free, 0))}")
    return Placement(current.hosts, current.details, f"there is room on {len(places)} bricks")
