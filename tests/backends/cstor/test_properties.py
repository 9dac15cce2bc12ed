"""Whatever happens to nodes, labels, disks, volumes and the declaration: what always holds.

The judge of pool clusters is written here once more, from the rules of OpenEBS and not from our checker: a mistake
there would not be seen by it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quartermaster.backends.cstor import HOOKS, reasons
from quartermaster.backends.cstor.hook import Attachments, SyncRequest
from quartermaster.backends.cstor.hooks import CONFIG_HOOK
from quartermaster.backends.cstor.names import CONFIG_UID_LABEL
from quartermaster.resources.kubernetes.core import Node, ObjectReference
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.openebs import (
    POOL_CLUSTER_LABEL,
    POOL_INSTANCE_LABEL,
    VOLUME_LABEL,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
    PoolSpec,
    RaidGroup,
)
from tests.backends.cstor.world import OPENEBS, World, config, device, external, node, replace, timestamp

NAMES = [f"n{number}" for number in range(6)]
SELECTED = {"nodeSelectorTerms": [{"matchLabels": {"pools": "yes"}}]}
SIZES = {"stripe": 2, "mirror": 2, "raidz": 3, "raidz2": 6}
CACHE = {"csiAttacherName": "csi.example", "storageClassName": "fast", "capacity": "10Gi"}
# What pools have besides their data: nothing, what was declared, what was found.
EXTRAS = {
    "plain": {"detectCaches": False},
    "declared": {"writeCache": {**CACHE, "count": 2}, "readCache": CACHE, "spare": True},
    "detected": {},
}

EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(["lose", "come", "cordon", "remove", "remake", "offline", "online"]), st.sampled_from(NAMES)
    ),
    st.tuples(st.sampled_from(["kill", "revive", "break"]), st.integers(0, 20)),
    st.tuples(st.sampled_from(["volume", "unvolume", "degrade"]), st.integers(0, 5)),
    st.tuples(st.sampled_from(["steal", "tag"]), st.integers(0, 20)),
    st.tuples(st.just("fill"), st.integers(0, 5)),
    st.tuples(st.just("counts"), st.tuples(st.integers(0, 4), st.integers(0, 3))),
    st.tuples(st.just("wait"), st.integers(1, 400)),
    st.tuples(st.just("restart"), st.integers(0, 3)),
)


def names(groups: Sequence[RaidGroup]) -> list[list[str]]:
    return [[d.block_device_name for d in group.block_devices] for group in groups]


def flat(pool: PoolSpec) -> list[str]:
    groups = (*names(pool.data_raid_groups), *names(pool.write_cache_raid_groups))
    return [name for group in groups for name in group]


def is_legal(raid: str, size: int) -> bool:
    legal = {"stripe": range(1, 100), "mirror": range(2, 100, 2), "raidz": (3, 5, 9, 17), "raidz2": (6, 10, 18)}
    return size in legal[raid]


def judge(world: World, old: CStorPoolCluster | None, new: CStorPoolCluster) -> None:
    """What OpenEBS would say, and what we promise: no disk that survives changes its place."""
    if old is not None and old.spec == new.spec:
        return
    hosts = [pool.node_selector[HOSTNAME_LABEL] for pool in new.spec.pools]
    everything = [name for pool in new.spec.pools for name in flat(pool)]
    assert len(hosts) == len(set(hosts))
    assert len(everything) == len(set(everything))
    for pool in new.spec.pools:
        host = pool.node_selector[HOSTNAME_LABEL]
        assert world.get(Node, host) is not None, "a pool is on a node that is not there"
        judge_groups(pool)
        for name in flat(pool):
            judge_device(world, name, host)
    for before in old.spec.pools if old is not None else ():
        heirs = [pool for pool in new.spec.pools if set(flat(pool)) & set(flat(before))]
        if not heirs:
            assert not replicas_of(world, before), "a pool with volumes was removed"
            continue
        [after] = heirs
        old_type, new_type = before.pool_config, after.pool_config
        assert old_type.data_raid_group_type == new_type.data_raid_group_type
        assert old_type.write_cache_group_type == new_type.write_cache_group_type
        present = flat(before)
        compare(world, old_type.data_raid_group_type, before.data_raid_groups, after.data_raid_groups, present)
        caches = before.write_cache_raid_groups, after.write_cache_raid_groups
        compare(world, old_type.write_cache_group_type, *caches, present)


def judge_groups(pool: PoolSpec) -> None:
    """Each group has a size that its type allows, and all groups of a pool the same."""
    for raid, groups in (
        (pool.pool_config.data_raid_group_type, names(pool.data_raid_groups)),
        (pool.pool_config.write_cache_group_type, names(pool.write_cache_raid_groups)),
    ):
        assert all(is_legal(raid, len(group)) for group in groups), f"{raid} of {groups}"
        assert raid == "stripe" or len({len(group) for group in groups}) <= 1
        assert raid != "stripe" or len(groups) == 1


def judge_device(world: World, name: str, host: str) -> None:
    """A disk that may be used there: well, in its place, and nobody else's."""
    found = world.get(BlockDevice, name, OPENEBS)
    assert found is not None
    assert found.status.state == "Active", f"{name} is not active"
    assert found.metadata.labels[HOSTNAME_LABEL] == host, f"{name} is elsewhere"
    assert "openebs.io/block-device-tag" not in found.metadata.labels, f"{name} has a tag that is not allowed"
    if (claimed := found.spec.claim_ref) is not None:
        claim = world.get(BlockDeviceClaim, claimed.name, OPENEBS)
        assert claim is not None
        assert claim.metadata.labels.get(POOL_CLUSTER_LABEL) == "pools", f"{name} is somebody else's"


def compare(
    world: World, raid: str, old: Sequence[RaidGroup], new: Sequence[RaidGroup], present: Sequence[str]
) -> None:
    for number, group in enumerate(names(old)):
        now = names(new)[number]
        assert len(now) == len(group) or (raid == "stripe" and len(now) > len(group))
        changed = [(was, is_) for was, is_ in zip(group, now, strict=False) if was != is_]
        assert len(changed) <= (0 if raid == "stripe" else 1)
        for was, is_ in changed:
            sizes = [world.get(BlockDevice, name, OPENEBS) for name in (was, is_)]
            assert sizes[0] is not None
            assert sizes[1] is not None
            assert sizes[1].spec.capacity.storage >= sizes[0].spec.capacity.storage
            assert is_ not in present


def replicas_of(world: World, pool: PoolSpec) -> list[str]:
    holders = {
        i.metadata.name
        for i in world.of(CStorPoolInstance)
        if {d.block_device_name for g in i.spec.data_raid_groups for d in g.block_devices} & set(flat(pool))
    }
    found = [r for r in world.of(CStorVolumeReplica) if r.metadata.labels[POOL_INSTANCE_LABEL] in holders]
    return [replica.metadata.name for replica in found]


class Life:
    """A cluster to which things happen."""

    def __init__(self, raid: str, *, local: bool, extras: str) -> None:
        self.raid = raid
        disks: dict[str, Any] = {"local": {}} if local else external()
        declared = config(
            diskConfig={**disks, "minCount": SIZES[raid], "lostAfterSeconds": 60},
            poolConfig={"raidType": raid, "poolExpansion": {"maxGroups": 3}, **EXTRAS[extras]},
            allowedNodes=SELECTED,
            minPoolCount=2,
            maxPoolCount=3,
        )
        self.world = World(declared, *(self.node(name) for name in NAMES[:4]))
        if local:
            for name in NAMES:
                for number in range(SIZES[raid] + 2):
                    self.world.put(device(f"disk-{name}-{number}", name))
        if extras == "detected":
            for name in NAMES[::2]:
                self.world.put(device(f"fast-{name}", name, 10, drive="SSD"))
        self.world.judge = judge
        self.made = 0

    def node(self, name: str, *, pools: str = "yes", cordoned: bool = False, uid: str = "") -> Node:
        return node(name, zone=f"z{int(name[1:]) % 2}", pools=pools, cordoned=cordoned, uid=uid)

    def happen(self, what: str, which: Any) -> None:
        world = self.world
        hosts = sorted(i.spec.host_name for i in world.of(CStorPoolInstance))
        match what:
            case "lose" | "come" | "cordon" | "remake":
                self.made += 1
                there = world.get(Node, which)
                uid = f"uid-{which}-{self.made}" if what == "remake" or there is None else there.metadata.uid
                world.put(self.node(which, pools="no" if what == "lose" else "yes", cordoned=what == "cordon", uid=uid))
            case "remove":
                if (found := world.get(Node, which)) is not None:
                    world.remove(found)
            case "offline" | "online":
                (world.offline.add if what == "offline" else world.offline.discard)(which)
            case "kill" | "revive":
                devices = [d.metadata.name for d in world.of(BlockDevice)]
                if devices:
                    name = devices[which % len(devices)]
                    (world.dead.add if what == "kill" else world.dead.discard)(name)
                    if what == "revive":
                        self._revive(name)
            case "break":
                # A disk of a pool dies, and time passes until it is given up.
                used = sorted(name for i in world.of(CStorPoolInstance) for name in world.devices_of(i))
                if used:
                    world.dead.add(used[which % len(used)])
                    world.step()
                    world.seconds += 100
            case "volume":
                if hosts:
                    world.volume_on(hosts[which % len(hosts)], f"v{self.made}")
            case "unvolume":
                for replica in world.of(CStorVolumeReplica)[: which + 1]:
                    world.remove(replica)
            case "degrade":
                for replica in world.of(CStorVolumeReplica)[: which + 1]:
                    world.put(replace(replica, status=replace(replica.status, phase="Degraded")))
            case "steal" | "tag":
                # Somebody else takes a disk that is free, or reserves it.
                free = [d for d in world.of(BlockDevice) if d.spec.claim_ref is None and self._is_nobodys(d)]
                if free:
                    self._take(free[which % len(free)], what)
            case "fill":
                if hosts:
                    world.used[hosts[which % len(hosts)]] = 190
            case "counts":
                least, more = which
                world.change(minPoolCount=least, maxPoolCount=least + more)
            case "wait":
                world.seconds += which
            case "restart":
                for _ in range(which):
                    world.stand_in()

    @staticmethod
    def _is_nobodys(found: BlockDevice) -> bool:
        return CONFIG_UID_LABEL not in found.metadata.labels

    def _take(self, found: BlockDevice, what: str) -> None:
        if what == "tag":
            labels = {**found.metadata.labels, "openebs.io/block-device-tag": "reserved"}
            self.world.put(replace(found, metadata=replace(found.metadata, labels=labels)))
            return
        name = f"theirs-{found.metadata.name}"
        self.world.put(BlockDeviceClaim(metadata=ObjectMeta(name=name, namespace=OPENEBS)))
        spec = replace(found.spec, claim_ref=ObjectReference(name=name))
        self.world.put(replace(found, spec=spec, status=replace(found.status, claim_state="Claimed")))

    def _revive(self, name: str) -> None:
        found = self.world.get(BlockDevice, name, OPENEBS)
        if found is not None:
            self.world.put(replace(found, status=replace(found.status, state="Active")))

    def step(self) -> None:
        """One step of the world, in which no pool leaves its place without need."""
        world = self.world
        before = {entry.slot: entry for entry in world.plan.spec.nodes} if world.plan is not None else {}
        copies = world.of(CStorVolumeReplica)
        holders = {i.spec.host_name: i.metadata.name for i in world.of(CStorPoolInstance) if i.status.phase == "ONLINE"}
        world.step()
        after = {entry.slot: entry for entry in world.plan.spec.nodes} if world.plan is not None else {}
        stayed = {holders.get(e.name) for slot, e in before.items() if slot in after and after[slot].name == e.name}
        for slot, entry in before.items():
            if slot in after and (after[slot].name, after[slot].uid) == (entry.name, entry.uid):
                continue
            there = world.get(Node, entry.name)
            if there is None or there.metadata.uid != entry.uid:
                continue
            unwanted = there.metadata.labels.get("pools") != "yes"
            most = world.config.spec.max_pool_count
            assert unwanted or (slot not in after and most is not None and len(before) > most), "it left without need"
            held = [r for r in copies if r.metadata.labels[POOL_INSTANCE_LABEL] == holders.get(entry.name)]
            for replica in held:
                assert any(is_another_copy(replica, other, stayed) for other in copies), "it left with the only copy"


def is_another_copy(replica: CStorVolumeReplica, other: CStorVolumeReplica, stayed: set[str | None]) -> bool:
    """A healthy one of the same volume, in a pool that stayed."""
    same = other.metadata.labels[VOLUME_LABEL] == replica.metadata.labels[VOLUME_LABEL]
    return same and other.status.phase == "Healthy" and other.metadata.labels[POOL_INSTANCE_LABEL] in stayed


def live(raid: str, local: bool, extras: str, events: list[tuple[str, Any]], paces: list[int]) -> Life:
    life = Life(raid, local=local, extras=extras)
    for number, (what, which) in enumerate(events):
        life.happen(what, which)
        for _ in range(paces[number % len(paces)]):
            life.step()
    life.world.settle(rounds=150)
    return life


LIVES = {
    "raid": st.sampled_from(sorted(SIZES)),
    "local": st.booleans(),
    "extras": st.sampled_from(sorted(EXTRAS)),
    "events": st.lists(EVENTS, max_size=12),
    "paces": st.lists(st.integers(0, 6), min_size=1, max_size=4),
}


def check_rest(life: Life) -> None:
    """At rest the plan is within its bounds, or the status says why not."""
    world = life.world
    plan, status = world.plan, world.config.status
    assert plan is not None
    effective = status.effective
    assert effective is not None
    assert effective.min_pool_count is not None
    assert effective.max_pool_count is not None
    held = {c.type for c in status.conditions if c.status == "True"}
    if len(plan.spec.nodes) < effective.min_pool_count:
        assert held & {reasons.IS_DEGRADED, reasons.NODE_CHANGE_HELD}, status.message
    if len(plan.spec.nodes) > effective.max_pool_count:
        assert reasons.NODE_CHANGE_HELD in held, status.message
    slots = [entry.slot for entry in plan.spec.nodes]
    hosts = [entry.name for entry in plan.spec.nodes]
    assert len(slots) == len(set(slots))
    assert len(hosts) == len(set(hosts))


def check_again(life: Life) -> None:
    """The same input, in whatever order, gives the same answer; and a new node changes nothing that stands."""
    world = life.world
    kinds = {rule.kind for rule in CONFIG_HOOK.attachments}
    objects = [obj for key, obj in world.objects.items() if key[0] in kinds]
    answers = []
    for seed in range(3):
        random.Random(seed).shuffle(objects)
        request = SyncRequest(watch=world.config, attachments=Attachments(objects), now=timestamp(world.seconds))
        answers.append(CONFIG_HOOK.sync(request))
    assert answers[0] == answers[1] == answers[2]
    for hook in HOOKS:
        for watch in world.of(hook.watch):
            before = dict(world.objects)
            world.call(hook, watch)
            assert world.objects == before, f"{hook.name} has more to say at rest"


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(**LIVES)
def test_no_life_breaks_the_rules(
    raid: str, local: bool, extras: str, events: list[tuple[str, Any]], paces: list[int]
) -> None:
    life = live(raid, local, extras, events, paces)
    check_rest(life)
    check_again(life)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False)
@given(**LIVES)
def test_no_life_breaks_the_rules_deep(
    raid: str, local: bool, extras: str, events: list[Any], paces: list[int]
) -> None:
    life = live(raid, local, extras, events, paces)
    check_rest(life)
    check_again(life)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(SIZES)), st.booleans(), st.lists(st.sampled_from(NAMES[4:]), unique=True, min_size=1))
def test_a_new_node_never_moves_a_pool(raid: str, local: bool, new: list[str]) -> None:
    life = live(raid, local, "plain", [], [1])
    before = life.world.planned()
    for name in new:
        life.world.put(life.node(name))
    life.world.settle()
    assert life.world.planned() == before
    assert len(life.world.applied) == 1
