"""What OpenEBS takes for a CStorPoolCluster, rule by rule."""

from typing import Any

import pytest

from quartermaster.backends.cstor.contract import World as Around
from quartermaster.backends.cstor.contract import check
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.resources import from_document
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import BlockDeviceClaim, CStorPoolCluster
from tests.backends.cstor.world import OPENEBS, device, node

Groups = list[list[str]]


def pool(
    host: str, *groups: list[str], raid: str = "mirror", cache: Groups | None = None, **config: Any
) -> dict[str, Any]:
    cache = cache or []
    kinds = {"dataRaidGroupType": raid, **({"writeCacheGroupType": "stripe"} if cache else {}), **config}
    return {
        "nodeSelector": {HOSTNAME_LABEL: host},
        "dataRaidGroups": [_group(group) for group in groups],
        **({"writeCacheRaidGroups": [_group(group) for group in cache]} if cache else {}),
        "poolConfig": kinds,
    }


def _group(names: list[str]) -> dict[str, Any]:
    return {"blockDevices": [{"blockDeviceName": name} for name in names]}


def cluster(*pools: dict[str, Any], **annotations: str) -> CStorPoolCluster:
    return from_document(
        CStorPoolCluster,
        {
            "metadata": {"name": "pools", "namespace": OPENEBS, "annotations": annotations},
            "spec": {"pools": list(pools)},
        },
    )


def around(*objects: Any, replicas: dict[str, list[str]] | None = None, claims: dict[str, Any] | None = None) -> Around:
    devices = [device(f"{name}{number}", host) for host, name in (("n1", "a"), ("n2", "b")) for number in range(9)]
    inventory = Inventory([node("n1"), node("n2"), *devices, *objects])
    return Around(inventory, OPENEBS, claims or {}, replicas or {})


def claim(device_name: str, cluster_name: str = "pools", **annotations: str) -> BlockDeviceClaim:
    metadata = {
        "name": f"bdc-{device_name}",
        "labels": {"openebs.io/cstor-pool-cluster": cluster_name},
        "annotations": annotations,
    }
    return from_document(BlockDeviceClaim, {"metadata": metadata, "spec": {"blockDeviceName": device_name}})


GOOD = cluster(pool("n1", ["a0", "a1"]), pool("n2", ["b0", "b1"]))


def said(new: CStorPoolCluster, old: CStorPoolCluster | None = None, world: Around | None = None) -> str:
    return "\n".join(map(str, check(new, old, world)))


def test_a_good_pool_cluster_is_taken() -> None:
    assert check(GOOD, None, around()) == []
    assert check(GOOD, GOOD, around()) == []


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (cluster(), "must have at least one pool"),
        (cluster(pool("n1")), "must have at least one group"),
        (cluster(pool("n1", ["a0"])), "a mirror group cannot have 1 disks"),
        (cluster(pool("n1", ["a0", "a1"], raid="raidz")), "a raidz group cannot have 2 disks"),
        (cluster(pool("n1", ["a0", "a1", "a2"], raid="raidz2")), "a raidz2 group cannot have 3 disks"),
        (cluster(pool("n1", ["a0"], ["a1"], raid="stripe")), "a stripe has exactly one group, not 2"),
        (cluster(pool("n1", ["a0", "a1"], raid="")), "dataRaidGroupType: is missing"),
        (cluster(pool("n1", ["a0", "a1"], raid="raid5")), '"raid5" is none of'),
        (cluster(pool("n1", ["a0", "a1"], compression="lz")), '"lz" is not known'),
        (cluster(pool("n1", ["a0", "a1"], roThresholdLimit=101)), "must be between 0 and 100"),
        (cluster(pool("n1", ["a0", "a1"]), pool("n1", ["a2", "a3"])), "is that of spec.pools[0] too"),
        (cluster(pool("n1", ["a0", "a1"]), pool("n2", ["a0", "b1"])), "BlockDevice a0 is at spec.pools[0]"),
        (cluster(pool("n1", ["a0", ""])), "a blockDeviceName is empty"),
        (cluster(pool("n1", ["a0", "a1"], cache=[["a2"], ["a3"]])), "a stripe has exactly one group, not 2"),
    ],
)
def test_the_form_of_a_pool_cluster(made: CStorPoolCluster, wrong: str) -> None:
    assert wrong in said(made)


@pytest.mark.parametrize(
    ("spoiled", "wrong"),
    [
        (device("a0", "n1", state="Inactive"), "BlockDevice a0 is Inactive, not Active"),
        (device("a0", "n1", file_system="ext4"), "has a file system: ext4"),
        (device("a0", "n2"), "BlockDevice a0 is on n2, and the pool on n1"),
        (device("a0", "n1", claim="Claimed"), "is claimed by somebody"),
        (device("a0", "n1", labels={"openebs.io/block-device-tag": "fast"}), 'has the tag "fast"'),
        (device("a0", "n1", labels={"openebs.io/block-device-tag": " "}), "has an empty tag"),
    ],
)
def test_every_device_must_be_fit_for_its_pool(spoiled: Any, wrong: str) -> None:
    assert wrong in said(GOOD, None, around(spoiled))


def test_a_device_with_zfs_on_it_or_an_allowed_tag_is_fit() -> None:
    tagged = device("a0", "n1", file_system="zfs_member", labels={"openebs.io/block-device-tag": "fast"})
    allowed = cluster(pool("n1", ["a0", "a1"]), **{"openebs.io/allowed-bd-tags": "slow, fast"})
    assert check(allowed, None, around(tagged)) == []


def test_a_device_claimed_by_this_cluster_is_fit_and_by_another_not() -> None:
    taken = device("a0", "n1", claim="Claimed")
    assert check(GOOD, None, around(taken, claims={"a0": claim("a0")})) == []
    assert "is claimed by" in said(GOOD, None, around(taken, claims={"a0": claim("a0", "others")}))


def test_a_device_or_node_that_is_not_there_is_told() -> None:
    assert "there is no BlockDevice a10" in said(cluster(pool("n1", ["a0", "a10"])), None, around())
    assert "must match exactly one node, matches 0" in said(cluster(pool("n3", ["a0", "a1"])), None, around())


def test_an_update_is_judged_over_all_pools() -> None:
    grown = cluster(pool("n1", ["a0", "a1"], ["a2", "a3"]), pool("n2", ["b0", "b1"]))
    assert check(grown, GOOD, around()) == []
    assert "b0 is Inactive" in said(grown, GOOD, around(device("b0", "n2", state="Inactive")))


@pytest.mark.parametrize(
    ("new", "wrong"),
    [
        (pool("n1", ["a0", "a1"], raid="stripe"), 'dataRaidGroupType: cannot change from "mirror" to "stripe"'),
        (pool("n1", ["a0", "a1"], cache=[["a4"]]), 'writeCacheGroupType: cannot change from "" to "stripe"'),
        (pool("n1", ["a2", "a3"]), "cannot be removed: a group stays"),
        (pool("n1", ["a0", "a1", "a2", "a3"]), "cannot grow: only a stripe does"),
        (pool("n1", ["a0", "b0"]), "cannot replace a1 by b0, which is in a pool already"),
    ],
)
def test_what_an_update_may_not_do_to_a_pool(new: dict[str, Any], wrong: str) -> None:
    assert wrong in said(cluster(new, pool("n2", ["b0", "b1"])), GOOD)


def test_no_group_shrinks_and_two_disks_of_one_are_not_replaced_at_once() -> None:
    four = cluster(pool("n1", ["a0", "a1", "a2", "a3"]))
    assert "cannot shrink from 4 to 2 disks" in said(cluster(pool("n1", ["a0", "a1"])), four)
    assert "at once: one disk of a group only" in said(cluster(pool("n1", ["a0", "a1", "a4", "a5"])), four)


def test_a_stripe_grows_and_loses_nothing() -> None:
    stripe = cluster(pool("n1", ["a0", "a1"], raid="stripe"))
    assert check(cluster(pool("n1", ["a0", "a1", "a2"], raid="stripe")), stripe, around()) == []
    assert "a stripe has no redundancy" in said(cluster(pool("n1", ["a0", "a2"], raid="stripe")), stripe)


def test_a_replacement_is_as_large_and_follows_a_device_that_is_known() -> None:
    new = cluster(pool("n1", ["a0", "x"]), pool("n2", ["b0", "b1"]))
    assert check(new, GOOD, around(device("x", "n1", 100))) == []
    assert "fewer than" in said(new, GOOD, around(device("x", "n1", 99)))
    world = around(device("x", "n1"))
    world.inventory.remove(device("a1", "n1"))
    assert "its BlockDevice object is gone" in said(new, GOOD, world)


def test_no_replacement_while_another_is_in_progress_in_the_group() -> None:
    new = cluster(pool("n1", ["a0", "x"]), pool("n2", ["b0", "b1"]))
    busy = {"a0": claim("a0", **{"openebs.io/bd-predecessor": "gone"})}
    assert "is still in progress" in said(new, GOOD, around(device("x", "n1"), claims=busy))


def test_a_pool_with_volume_replicas_is_not_removed() -> None:
    fewer = cluster(pool("n1", ["a0", "a1"]))
    assert check(fewer, GOOD, around()) == []
    assert "cannot be removed: its pool holds volume replicas (v1)" in said(
        fewer, GOOD, around(replicas={"n2": ["v1"]})
    )


def test_a_pool_moves_to_another_node_with_the_same_disks() -> None:
    moved = [device(name, "n3") for name in ("b0", "b1")]
    new = cluster(pool("n1", ["a0", "a1"]), pool("n3", ["b0", "b1"]))
    assert check(new, GOOD, around(node("n3"), *moved, replicas={"n2": ["v1"]})) == []
