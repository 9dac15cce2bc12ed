"""What of a declaration reaches the pools, and what is taken back with it."""

from typing import Any

import pytest

from quartermaster.backends.cstor import reasons
from quartermaster.resources import to_document
from quartermaster.resources.openebs import CStorPoolCluster
from tests.backends.cstor.clusters import MIRROR, SELECTED, cluster
from tests.backends.cstor.world import World, external, replace

STATED = {
    "computeResources": {"requests": {"memory": "2Gi", "cpu": "250m"}, "limits": {"memory": "4Gi"}},
    "compression": "lz4",
    "thickProvision": True,
    "readOnlyPercent": 90,
    "tolerations": [{"key": "storage", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "high",
}
WRITTEN = {
    "resources": {"requests": {"memory": "2Gi", "cpu": "250m"}, "limits": {"memory": "4Gi"}},
    "compression": "lz4",
    "thickProvision": True,
    "roThresholdLimit": 90,
    "tolerations": [{"key": "storage", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "high",
}


def pool_configs(world: World) -> list[dict[str, Any]]:
    assert world.pool_cluster is not None
    return [pool["poolConfig"] for pool in to_document(world.pool_cluster)["spec"]["pools"]]


def test_every_field_of_the_declaration_reaches_every_pool() -> None:
    world = cluster(poolConfig={**MIRROR, **STATED})
    assert pool_configs(world) == [{"dataRaidGroupType": "mirror", **WRITTEN}] * 3


@pytest.mark.slow
@pytest.mark.parametrize("field", sorted(STATED))
def test_a_field_that_is_declared_later_and_taken_back_is_gone_from_the_pools(field: str) -> None:
    world = cluster(poolConfig=MIRROR)
    bare = pool_configs(world)
    world.change(poolConfig={**MIRROR, field: STATED[field]})
    world.settle()
    assert pool_configs(world) != bare
    world.change(poolConfig=MIRROR)
    world.settle()
    assert pool_configs(world) == bare
    assert world.config.status.phase == reasons.READY


def test_what_somebody_else_wrote_into_the_pools_stays() -> None:
    world = cluster(poolConfig=MIRROR)

    def compress(found: CStorPoolCluster) -> CStorPoolCluster:
        pools = tuple(replace(p, pool_config=replace(p.pool_config, compression="off")) for p in found.spec.pools)
        return replace(found, spec=replace(found.spec, pools=pools))

    world.edit(CStorPoolCluster, compress)
    world.change(poolConfig={**MIRROR, "thickProvision": True})
    world.settle()
    world.change(poolConfig=MIRROR)
    world.settle()
    assert [found.get("compression") for found in pool_configs(world)] == ["off"] * 3


def test_a_field_that_could_not_be_taken_back_at_once_is_taken_back_later() -> None:
    world = cluster(poolConfig={**MIRROR, "compression": "lz4"})
    first = world.groups("n0")[0][0]
    world.dead.add(first)
    world.settle()
    world.change(poolConfig=MIRROR)
    world.settle()
    assert world.condition(reasons.POOL_CLUSTER_APPLIED)[1] == reasons.CONTRACT_BROKEN
    assert [found["compression"] for found in pool_configs(world)] == ["lz4"] * 3
    world.seconds += 400
    world.settle()
    assert world.config.status.phase == reasons.READY
    assert ["compression" in found for found in pool_configs(world)] == [False] * 3


def test_as_many_nodes_change_at_once_as_are_allowed() -> None:
    world = cluster(6, minPoolCount=1, maxPoolCount=5, maxNodeChanges=2)
    world.change(minPoolCount=5)
    world.settle()
    assert len(world.planned()) == 5
    assert [len(applied.spec.pools) for applied in world.applied] == [1, 3, 5]


def test_two_pools_move_at_once_where_two_changes_are_allowed() -> None:
    world = cluster(6, allowedNodes=SELECTED, maxNodeChanges=2)
    for host in ("n0", "n1", "n2"):
        world.relabel(host, pools=None)
    world.step()
    assert len({"n0", "n1", "n2"}.intersection(world.planned())) == 1
    world.settle()
    assert sorted(world.planned()) == ["n3", "n4", "n5"]


def test_a_least_number_that_was_worked_out_is_missed_when_nodes_are_lost() -> None:
    world = cluster(3, allowedNodes=SELECTED, diskConfig=external())
    world.relabel("n2", pools=None)
    world.settle()
    assert world.planned() == ["n0", "n1"]
    assert world.condition(reasons.IS_DEGRADED)[:2] == ("True", reasons.MISSING_POOLS)
    assert world.config.status.effective is not None
    assert world.config.status.effective.min_pool_count == 3
    assert world.config.status.phase == reasons.DEGRADED
    world.relabel("n2", pools="yes")
    world.settle()
    assert world.planned() == ["n0", "n1", "n2"]
