"""What OpenEBS takes for a CStorPoolCluster, so that nothing is applied that its admission would refuse.

`check` with one document has the rules of creation, with an old and a new one those of an update as well. Rules about
nodes, devices, claims and volumes need to see them: without a `World` they are left out.

An update is judged over all pools, not only over those that change: a node that is gone or a disk that is dead in one
pool makes OpenEBS refuse every change of every pool, until the same update mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from quartermaster.backends.cstor.devices import (
    has_foreign_file_system,
    host_of,
    is_active,
    is_claimed,
    tag_is_allowed,
    tags_of,
)
from quartermaster.backends.cstor.groups import is_legal_size, legal_sizes
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.view import names_of
from quartermaster.resources.agility import RAID_TYPES
from quartermaster.resources.openebs import (
    ALLOWED_TAGS_ANNOTATION,
    DEVICE_TAG_LABEL,
    POOL_CLUSTER_LABEL,
    PREDECESSOR_ANNOTATION,
    STRIPE,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    PoolSpec,
)
from quartermaster.support.errors import Problem

COMPRESSIONS = ("", "on", "off", "lzjb", "gzip", "zle", "lz4")


class World(msgspec.Struct, frozen=True):
    """What OpenEBS looks at besides the document."""

    inventory: Inventory
    namespace: str
    claims: Mapping[str, BlockDeviceClaim] = {}  # by BlockDevice, of whomever
    replicas: Mapping[str, Sequence[str]] = {}  # by the host of the pool

    def device(self, name: str) -> BlockDevice | None:
        return self.inventory.device(self.namespace, name)


def check(new: CStorPoolCluster, old: CStorPoolCluster | None = None, world: World | None = None) -> list[Problem]:
    """Everything that OpenEBS would refuse, most important first within a pool."""
    if old is not None and old.spec == new.spec:
        return []
    problems = [*_shape_problems(new)]
    if world is not None:
        problems += _world_problems(new, world)
    if old is not None:
        problems += _update_problems(old, new, world)
    return problems


def _shape_problems(cluster: CStorPoolCluster) -> Iterator[Problem]:
    if not cluster.spec.pools:
        yield Problem("spec.pools", "must have at least one pool")
    yield from _repeated(cluster.spec.pools)
    for position, pool in enumerate(cluster.spec.pools):
        path = f"spec.pools[{position}]"
        if not pool.node_selector:
            yield Problem(f"{path}.nodeSelector", "is missing", "for example kubernetes.io/hostname: node-1")
        config = pool.pool_config
        if config.compression not in COMPRESSIONS:
            yield Problem(f"{path}.poolConfig.compression", f'"{config.compression}" is not known to OpenEBS')
        limit = config.ro_threshold_limit
        if limit is not None and not 0 <= limit <= 100:
            yield Problem(f"{path}.poolConfig.roThresholdLimit", f"must be between 0 and 100, is {limit}")
        yield from _group_problems(path, "data", pool, config.data_raid_group_type)
        if pool.write_cache_raid_groups:
            yield from _group_problems(path, "writeCache", pool, config.write_cache_group_type)


def _repeated(pools: Sequence[PoolSpec]) -> Iterator[Problem]:
    seen_devices: dict[str, str] = {}
    seen_nodes: dict[tuple[tuple[str, str], ...], str] = {}
    for position, pool in enumerate(pools):
        path = f"spec.pools[{position}]"
        selector = tuple(sorted(pool.node_selector.items()))
        if selector and (first := seen_nodes.setdefault(selector, path)) != path:
            yield Problem(f"{path}.nodeSelector", f"is that of {first} too", "a node has one pool of a cluster")
        for place, name in _devices(path, pool):
            if (first := seen_devices.setdefault(name, place)) != place:
                yield Problem(place, f"BlockDevice {name} is at {first} already")


def _devices(path: str, pool: PoolSpec) -> Iterator[tuple[str, str]]:
    for field, groups in (
        ("dataRaidGroups", pool.data_raid_groups),
        ("writeCacheRaidGroups", pool.write_cache_raid_groups),
    ):
        for number, group in enumerate(groups):
            for place, device in enumerate(group.block_devices):
                yield f"{path}.{field}[{number}].blockDevices[{place}]", device.block_device_name


def _group_problems(path: str, sort: str, pool: PoolSpec, raid_type: str) -> Iterator[Problem]:
    groups = pool.data_raid_groups if sort == "data" else pool.write_cache_raid_groups
    field = f"{path}.{sort}RaidGroups"
    type_path = f"{path}.poolConfig.{'dataRaidGroupType' if sort == 'data' else 'writeCacheGroupType'}"
    if raid_type not in RAID_TYPES:
        yield Problem(type_path, f'"{raid_type}" is none of {", ".join(RAID_TYPES)}' if raid_type else "is missing")
        return
    if not groups:
        yield Problem(field, "must have at least one group")
    if raid_type == STRIPE and len(groups) > 1:
        yield Problem(field, f"a stripe has exactly one group, not {len(groups)}")
    for number, group in enumerate(groups):
        size = len(group.block_devices)
        if not is_legal_size(raid_type, size):
            yield Problem(f"{field}[{number}]", f"a {raid_type} group cannot have {size} disks", legal_sizes(raid_type))
        if any(not device.block_device_name for device in group.block_devices):
            yield Problem(f"{field}[{number}]", "a blockDeviceName is empty")


def _world_problems(cluster: CStorPoolCluster, world: World) -> Iterator[Problem]:
    tags = tags_of(cluster.metadata.annotations.get(ALLOWED_TAGS_ANNOTATION, ""))
    hosts: dict[str, str] = {}
    for position, pool in enumerate(cluster.spec.pools):
        path = f"spec.pools[{position}]"
        nodes = world.inventory.matching(pool.node_selector) if pool.node_selector else ()
        if len(nodes) != 1:
            shown = ", ".join(f"{key}={value}" for key, value in sorted(pool.node_selector.items()))
            yield Problem(f"{path}.nodeSelector", f"{shown} must match exactly one node, matches {len(nodes)}")
            continue
        host = nodes[0].hostname
        if (first := hosts.setdefault(host, path)) != path:
            yield Problem(f"{path}.nodeSelector", f"is the node of {first} too")
        for place, name in _devices(path, pool):
            yield from _device_problems(place, name, host=host, cluster=cluster.metadata.name, tags=tags, world=world)


def _device_problems(
    place: str, name: str, *, host: str, cluster: str, tags: Sequence[str], world: World
) -> Iterator[Problem]:
    device = world.device(name)
    if device is None:
        yield Problem(place, f"there is no BlockDevice {name} in namespace {world.namespace}")
        return
    if not is_active(device):
        yield Problem(place, f"BlockDevice {name} is {device.status.state or 'of no state'}, not Active")
    if has_foreign_file_system(device):
        yield Problem(place, f"BlockDevice {name} has a file system: {device.spec.filesystem.fs_type}")
    if host_of(device) != host:
        yield Problem(place, f"BlockDevice {name} is on {host_of(device)}, and the pool on {host}")
    tag = device.metadata.labels.get(DEVICE_TAG_LABEL)
    if not tag_is_allowed(tag, tags):
        named = tag is not None and tag.strip()
        what = f'has the tag "{tag}", which {ALLOWED_TAGS_ANNOTATION} does not allow' if named else "has an empty tag"
        yield Problem(place, f"BlockDevice {name} {what}")
    if is_claimed(device) and not _is_ours(device, cluster, world):
        claim = device.spec.claim_ref.name if device.spec.claim_ref is not None else "somebody"
        yield Problem(place, f"BlockDevice {name} is claimed by {claim}, not by this pool cluster")


def _is_ours(device: BlockDevice, cluster: str, world: World) -> bool:
    claim = world.claims.get(device.metadata.name)
    return claim is not None and claim.metadata.labels.get(POOL_CLUSTER_LABEL) == cluster


def _update_problems(old: CStorPoolCluster, new: CStorPoolCluster, world: World | None) -> Iterator[Problem]:
    present = {name for pool in old.spec.pools for _, name in _devices("", pool)}
    for position, before in enumerate(old.spec.pools):
        found = _successor(before, new.spec.pools)
        if found is None:
            yield from _removal_problems(f"spec.pools[{position}]", before, world)
            continue
        place, after = found
        path = f"spec.pools[{place}]"
        for field in ("data_raid_group_type", "write_cache_group_type"):
            was, is_ = getattr(before.pool_config, field), getattr(after.pool_config, field)
            if was != is_:
                what = "dataRaidGroupType" if field.startswith("data") else "writeCacheGroupType"
                yield Problem(f"{path}.poolConfig.{what}", f'cannot change from "{was}" to "{is_}"')
        yield from _changes(
            f"{path}.dataRaidGroups",
            names_of(before.data_raid_groups),
            names_of(after.data_raid_groups),
            raid_type=before.pool_config.data_raid_group_type,
            present=present,
            world=world,
        )
        yield from _changes(
            f"{path}.writeCacheRaidGroups",
            names_of(before.write_cache_raid_groups),
            names_of(after.write_cache_raid_groups),
            raid_type=before.pool_config.write_cache_group_type,
            present=present,
            world=world,
        )


def _successor(before: PoolSpec, pools: Sequence[PoolSpec]) -> tuple[int, PoolSpec] | None:
    """The same pool later: with the same disks wherever it is now, else on the same node."""
    devices = {name for _, name in _devices("", before)}
    for position, pool in enumerate(pools):
        if devices.intersection(name for _, name in _devices("", pool)):
            return position, pool
    return next(((n, pool) for n, pool in enumerate(pools) if pool.node_selector == before.node_selector), None)


def _removal_problems(path: str, pool: PoolSpec, world: World | None) -> Iterator[Problem]:
    if world is None:
        return
    nodes = world.inventory.matching(pool.node_selector)
    hosts = [*pool.node_selector.values(), *(node.hostname for node in nodes)]
    held = next((world.replicas[host] for host in hosts if world.replicas.get(host)), ())
    if held:
        shown = ", ".join(held[:3]) + (" …" if len(held) > 3 else "")
        yield Problem(path, f"cannot be removed: its pool holds volume replicas ({shown})")


def _changes(
    path: str,
    before: Sequence[Sequence[str]],
    after: Sequence[Sequence[str]],
    *,
    raid_type: str,
    present: Iterable[str],
    world: World | None,
) -> Iterator[Problem]:
    for number, group in enumerate(before):
        heir = next((other for other in after if set(group) & set(other)), None)
        if heir is None:
            yield Problem(f"{path}[{number}]", "cannot be removed: a group stays for ever")
            continue
        gone = [name for name in group if name not in heir]
        come = [name for name in heir if name not in group]
        if len(heir) < len(group):
            yield Problem(f"{path}[{number}]", f"cannot shrink from {len(group)} to {len(heir)} disks")
        elif len(heir) > len(group) and raid_type != STRIPE:
            yield Problem(f"{path}[{number}]", f"cannot grow: only a stripe does; add a whole {raid_type} group")
        if not gone:
            continue
        if raid_type == STRIPE:
            yield Problem(f"{path}[{number}]", f"cannot replace {', '.join(gone)}: a stripe has no redundancy")
        elif len(gone) > 1:
            yield Problem(f"{path}[{number}]", f"cannot replace {', '.join(gone)} at once: one disk of a group only")
        elif come:
            if come[0] in present:
                yield Problem(f"{path}[{number}]", f"cannot replace {gone[0]} by {come[0]}, which is in a pool already")
            if world is not None:
                yield from _replacement_problems(f"{path}[{number}]", group, gone[0], come[0], world)


def _replacement_problems(path: str, group: Sequence[str], old: str, new: str, world: World) -> Iterator[Problem]:
    for name in group:
        claim = world.claims.get(name)
        if claim is not None and claim.metadata.annotations.get(PREDECESSOR_ANNOTATION):
            yield Problem(path, f"cannot replace {old}: the replacement by {name} is still in progress")
    before, after = world.device(old), world.device(new)
    if before is None:
        yield Problem(path, f"cannot replace {old}: its BlockDevice object is gone, and OpenEBS compares with it")
    elif after is not None and after.spec.capacity.storage < before.spec.capacity.storage:
        yield Problem(
            path,
            f"cannot replace {old} by {new}: it has {after.spec.capacity.storage} bytes, "
            f"fewer than {before.spec.capacity.storage}",
        )
