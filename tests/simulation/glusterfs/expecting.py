"""What a GlusterFS cluster must have come to when nothing goes wrong any more, by the objects and by the model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.resources.storage import ONLINE, StorageNode, StorageStatus
from quartermaster.stores.objects import ObjectStore
from quartermaster.testing.simulation import record
from tests.simulation.orchestration.invariants import NAMESPACE

from .hosts import GlusterMachine
from .invariants import PHOTOS, STRANGER, Auditor
from .model import GlusterModel
from .records import IN_CLUSTER

READY = "Ready"


class Rest(msgspec.Struct, frozen=True):
    store: ObjectStore
    model: GlusterModel
    auditor: Auditor
    machines: Mapping[str, GlusterMachine]
    addresses: Mapping[str, str]

    @property
    def alive(self) -> list[str]:
        return [host for host, machine in self.machines.items() if not machine.destroyed]


async def wrong_with(rest: Rest) -> str:
    """The first thing that is not as it must be; "" if all is well."""
    return await _wrong_with_objects(rest) or await _wrong_with_volumes(rest) or _wrong_with_pool(rest)


async def _wrong_with_objects(rest: Rest) -> str:
    nodes = (await rest.store.list(StorageNode, NAMESPACE)).items
    if sorted(node.metadata.name for node in nodes) != [f"node-{host}" for host in rest.alive]:
        return f"there are {[(node.metadata.name, node.status.state, node.status.message) for node in nodes]}"
    for node in nodes:
        if node.metadata.deletion_timestamp or node.status.state != READY:
            return f"{node.metadata.name} is {node.status.state}: {node.status.message}"
    for one in (await rest.store.list(Assignment, NAMESPACE)).items:
        status, there = one.status, one.spec.host in rest.alive
        done = status.state == SUCCEEDED and status.observed_generation == one.spec.generation
        if there and (not done or one.spec.absent):
            return f"{one.key} is not done: {one.spec} {status}"
    for status in (await rest.store.list(StorageStatus, NAMESPACE)).items:
        degraded = [one for one in status.status.conditions if one.type == "Degraded" and one.status == "True"]
        # Who knows a peer that nobody declared is told of it for as long as it is there.
        missing = [one for one in degraded if one.reason != "UnknownPeers"]
        if status.spec.status != ONLINE or missing:
            return f"{status.key} is {status.spec.status}: {status.status.message}; {missing}"
    return ""


async def _wrong_with_volumes(rest: Rest) -> str:
    claims = (await rest.store.list(PersistentVolumeClaim, NAMESPACE)).items
    for claim in claims:
        if claim.metadata.deletion_timestamp or claim.status.phase != "Bound":
            return f"{claim.key} is {claim.status.phase}: {claim.metadata.finalizers}"
    wanted = sorted(f"pvc-{claim.metadata.uid}" for claim in claims)
    kept = sorted(one.metadata.name for one in (await rest.store.list(PersistentVolume)).items)
    made = sorted(volume.name for volume in rest.model.volumes.values() if volume.name != PHOTOS)
    if not wanted == kept == made:
        return f"there are claims for {wanted}, PersistentVolumes {kept}, volumes {made}"
    for volume in rest.model.volumes.values():
        if volume.name == PHOTOS:
            continue
        ended = [brick.address for brick in volume.bricks if not rest.model.serves(brick)]
        if not volume.started or ended:
            return f"{volume.name} is {volume.status}, and {ended} do not run"
        if len({brick.address for brick in volume.bricks}) != volume.shape.width:
            return f"{volume.name} has two bricks on one host: {[brick.name for brick in volume.bricks]}"
        if not rest.auditor.all_whole(volume):
            return f"{volume.name} is not whole"
    return _left_over(rest)


def _left_over(rest: Rest) -> str:
    """Directories of bricks that no volume has, on disks that are in use."""
    bricks = [(brick.address, brick.path) for volume in rest.model.volumes.values() for brick in volume.bricks]
    for host in rest.alive:
        machine = rest.machines[host]
        mounted = {mount.number for mount in machine.mounts}
        disks = {disk.number for disk in machine.disks.values()}
        for number, path in machine.directories:
            is_brick = ("/pvc-" in path or "/.pvc-" in path) and number in mounted and number in disks
            if is_brick and (rest.addresses[host], path) not in bricks:
                return f"{path.rpartition('/')[2]} is left on {host}"
    return ""


def _wrong_with_pool(rest: Rest) -> str:
    wanted = sorted(rest.addresses[host] for host in rest.alive)
    for host in rest.alive:
        daemon = rest.model.running(rest.addresses[host])
        if daemon is None:
            return f"no glusterd runs on {host}"
        peers = [peer for peer in daemon.peers.values() if peer.address != STRANGER]
        known = sorted([daemon.address, *(peer.address for peer in peers)])
        if known != wanted or any(peer.state != IN_CLUSTER for peer in peers):
            return f"{host} has the peers {peers}, and not {wanted}"
        for volume in rest.model.volumes.values():
            if not volume.says_the_same(daemon.volumes.get(volume.name)) and volume.name != PHOTOS:
                return f"{host} has another idea of {volume.name}"
        known_volumes = {PHOTOS, *(volume.name for volume in rest.model.volumes.values())}
        if brought := [name for name in daemon.volumes if name not in known_volumes]:
            return f"{host} has volumes that were deleted: {brought}"
    return ""


async def tell(rest: Rest) -> None:
    """All there is to know, into the trace."""
    for status in (await rest.store.list(StorageStatus, NAMESPACE)).items:
        record("status", status.spec.status, *((one.type, one.reason, one.message) for one in status.status.conditions))
    for memory in (await rest.store.list(ConfigMap, NAMESPACE)).items:
        record("memory", memory.data)
    for node in (await rest.store.list(StorageNode, NAMESPACE)).items:
        record("node", node.metadata.name, node.metadata.deletion_timestamp, node.status.state, node.status.message)
    for one in (await rest.store.list(Assignment, NAMESPACE)).items:
        record("assignment", one.metadata.name, one.spec.absent, one.spec.desired)
        record("report", one.metadata.name, one.status.state, one.status.message, one.status.result)
    for volume in rest.model.volumes.values():
        bricks = [(brick.name, rest.model.serves(brick), rest.auditor.stored(brick)) for brick in volume.bricks]
        record("volume", volume.name, volume.status, volume.version, *bricks)
    for host in rest.alive:
        daemon, machine = rest.model.running(rest.addresses[host]), rest.machines[host]
        disks = [(disk.path, disk.serial) for disk in machine.disks.values()]
        mounts = [(mount.source, mount.target[-40:]) for mount in machine.mounts]
        versions = {one.name: one.version for one in daemon.volumes.values()} if daemon is not None else {}
        record("host", host, disks, mounts, versions, daemon.peers if daemon is not None else None)


async def wrong_with_what_is_left(rest: Rest) -> str:
    for kind in (PersistentVolumeClaim, PersistentVolume, StorageNode, Assignment):
        for left in (await rest.store.list(kind)).items:
            gone = isinstance(left, Assignment) and left.spec.host not in rest.alive
            if not gone:
                return f"{left.key} is still there: {left}"
    if rest.model.volumes:
        return f"there are still volumes: {[volume.name for volume in rest.model.volumes.values()]}"
    for host in rest.alive:
        machine = rest.machines[host]
        if mounts := [mount.source for mount in machine.mounts if mount.target != "/"]:
            return f"{mounts} are still mounted on {host}"
        if any(process.lives for process in machine.processes.values()):
            return f"daemons still run on {host}: {list(machine.processes)}"
        disks = [disk.number for disk in machine.disks.values()]
        if left_over := [
            path for number, path in machine.directories if ("/pvc-" in path or "/.pvc-" in path) and number in disks
        ]:
            return f"{left_over} are left on {host}"
    return ""
