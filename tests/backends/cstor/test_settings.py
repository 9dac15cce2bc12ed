"""Defaults and mistakes of a CStorClusterConfig, in the order of the specification."""

from typing import Any

import pytest

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.settings import Settings, Surroundings, judge
from quartermaster.resources.agility import CStorClusterConfig, CStorClusterConfigSpec
from quartermaster.resources.codec import from_document
from tests.backends.cstor.world import external

SIX = Surroundings(allowed_nodes=6, cluster_nodes=6)
LOCAL = {"local": {"blockDeviceSelector": {"matchLabels": {"use": "pools"}}}}


def spec(**given: Any) -> CStorClusterConfigSpec:
    given.setdefault("diskConfig", external())
    return from_document(CStorClusterConfig, {"metadata": {"name": "c"}, "spec": given}).spec


def settings(around: Surroundings = SIX, **given: Any) -> Settings:
    verdict = judge(spec(**given), around)
    assert verdict.problems == ()
    assert verdict.settings is not None
    return verdict.settings


def problems(around: Surroundings = SIX, **given: Any) -> list[str]:
    verdict = judge(spec(**given), around)
    assert verdict.settings is None
    return [str(problem) for problem in verdict.problems]


@pytest.mark.parametrize(
    ("allowed", "nodes", "least", "most"), [(6, 6, 3, 5), (2, 6, 2, 4), (6, 1, 1, 3), (0, 6, 0, 2)]
)
def test_the_least_number_is_that_of_the_nodes_up_to_three(allowed: int, nodes: int, least: int, most: int) -> None:
    found = settings(Surroundings(allowed, nodes))
    assert (found.least_pools, found.most_pools) == (least, most)


def test_nodes_that_are_lost_do_not_lower_what_was_planned() -> None:
    assert settings(Surroundings(2, 2, settled_pools=3)).least_pools == 3
    assert settings(Surroundings(0, 0, settled_pools=7)).least_pools == 3
    assert settings(Surroundings(0, 6, settled_pools=3), maxPoolCount=2).least_pools == 2
    assert settings(Surroundings(0, 6, settled_pools=3), minPoolCount=1).least_pools == 1


def test_the_most_is_two_more_than_the_least() -> None:
    assert settings(minPoolCount=4).most_pools == 6
    assert settings(minPoolCount=4, maxPoolCount=4).most_pools == 4


def test_a_most_below_the_default_least_lowers_it() -> None:
    assert settings(maxPoolCount=1).least_pools == 1


@pytest.mark.parametrize(
    ("raid", "disks", "size"), [("stripe", 2, 0), ("mirror", 2, 2), ("raidz", 3, 3), ("raidz2", 6, 6)]
)
def test_each_type_has_its_number_of_disks_and_size_of_groups(raid: str, disks: int, size: int) -> None:
    found = settings(poolConfig={"raidType": raid})
    assert (found.disks, found.group_size) == (disks, size)


def test_the_type_is_stripe_or_that_of_the_pools_that_exist() -> None:
    assert settings().raid_type == "stripe"
    assert settings(Surroundings(6, 6, raid_type="mirror", group_size=2)).raid_type == "mirror"


def test_a_disk_has_a_hundred_gibibytes_and_a_pool_grows_at_eighty_per_cent() -> None:
    found = settings()
    assert (found.capacity, found.least_bytes) == ("100Gi", 100 * 2**30)
    assert (found.expands, found.threshold) == (True, 0.8)


def test_a_cache_has_one_disk_of_the_capacity_of_the_others() -> None:
    cache = {"csiAttacherName": "a", "storageClassName": "c"}
    found = settings(poolConfig={"writeCache": cache}, diskConfig=external(minCapacity="7Gi"))
    assert found.write_cache is not None
    assert (found.write_cache.count, found.write_cache.capacity) == (1, "7Gi")


def test_what_holds_is_told_in_full_and_the_spec_stays() -> None:
    declared = spec(minPoolCount=2)
    verdict = judge(declared, SIX)
    assert verdict.effective is not None
    assert verdict.effective.max_pool_count == 4
    assert verdict.effective.pool_config is not None
    assert verdict.effective.pool_config.raid_type == "stripe"
    assert declared.max_pool_count is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"diskConfig": {}}, "spec.diskConfig: says neither where disks come from nor which to use"),
        ({"diskConfig": {**external(), **LOCAL}}, "externalProvisioner and local exclude each other"),
        ({"minPoolCount": -1}, "spec.minPoolCount: must not be negative, is -1"),
        ({"minPoolCount": 3, "maxPoolCount": 2}, "3 is more than maxPoolCount 2"),
        ({"poolConfig": {"raidType": "mirror", "groupSize": 3}}, "a mirror group cannot have 3 disks"),
        ({"poolConfig": {"raidType": "raidz", "groupSize": 4}}, "2^n + 1 disks: 3, 5, 9, 17, …"),
        ({"poolConfig": {"raidType": "raidz2", "groupSize": 4}}, "2^n + 2 disks: 6, 10, 18, …"),
        ({"poolConfig": {"raidType": "stripe", "groupSize": 2}}, "does not go with stripe"),
        ({"poolConfig": {"raidType": "raid5"}}, "raid5 is none of stripe, mirror, raidz, raidz2"),
        ({"diskConfig": external(minCapacity="0")}, "spec.diskConfig.minCapacity: must be more than 0"),
    ],
)
def test_a_mistake_is_told_with_its_place(given: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in problems(**given))


@pytest.mark.parametrize(
    ("raid", "size", "count", "legal"),
    [
        ("mirror", 2, 5, "use 4 or 6"),
        ("raidz", 3, 4, "use 3 or 6"),
        ("raidz2", 6, 1, "use 6"),
        ("mirror", 4, 6, "use 4 or 8"),
    ],
)
def test_a_count_that_cannot_be_cut_lists_the_nearest_that_can(raid: str, size: int, count: int, legal: str) -> None:
    [problem] = problems(poolConfig={"raidType": raid, "groupSize": size}, diskConfig=external(minCount=count))
    assert f"{count} disks cannot be cut into {raid} groups of {size}" in problem
    assert legal in problem


def test_all_mistakes_are_told_at_once_in_order() -> None:
    found = problems(diskConfig={"minCount": 3}, minPoolCount=2, maxPoolCount=1, poolConfig={"raidType": "mirror"})
    assert [problem.partition(":")[0] for problem in found] == [
        "spec.diskConfig",
        "spec.minPoolCount",
        "spec.diskConfig.minCount",
    ]


def test_what_the_pools_are_cannot_change() -> None:
    exists = Surroundings(6, 6, raid_type="mirror", group_size=2)
    assert "cannot change from mirror to raidz" in problems(exists, poolConfig={"raidType": "raidz"})[0]
    wider = {"raidType": "mirror", "groupSize": 4}
    assert "cannot change from 2 to 4" in problems(exists, poolConfig=wider)[0]
    assert "disks that were made" in problems(Surroundings(6, 6, made_disks=True), diskConfig=LOCAL)[0]


def test_a_threshold_at_the_read_only_limit_is_a_warning() -> None:
    late = {"poolExpansion": {"threshold": {"used-capacity": 0.85}}}
    assert "85% is not below 85%" in str(judge(spec(poolConfig=late), SIX).warnings[0])
    assert judge(spec(poolConfig={**late, "readOnlyPercent": 95}), SIX).warnings == ()
    assert judge(spec(poolConfig={"poolExpansion": {"disable": True, **late["poolExpansion"]}}), SIX).warnings == ()


def test_old_spellings_hold_and_are_pointed_out() -> None:
    old = {
        "diskConfig": {"external": external()["externalProvisioner"]},
        "allowedNodes": {"selectorTerms": [{"matchLabels": {"a": "b"}}]},
        "poolConfig": {"poolExpansion": {"capacityThreshold": {"used-capacity": 0.5}}},
    }
    verdict = judge(spec(**old), SIX)
    assert verdict.settings is not None
    assert verdict.settings.provisioner is not None
    assert verdict.settings.terms[0].match_labels == {"a": "b"}
    assert verdict.settings.threshold == 0.5
    assert {warning.reason for warning in verdict.warnings} == {reasons.OLD_SPELLING}
    assert [warning.problem.fix for warning in verdict.warnings] == [
        "write externalProvisioner",
        "write nodeSelectorTerms",
        "write threshold",
    ]


def test_each_warning_has_its_own_reason_and_the_gravest_comes_first() -> None:
    late = {"poolExpansion": {"capacityThreshold": {"used-capacity": 0.9}}}
    found = judge(spec(poolConfig=late), SIX).warnings
    assert [warning.reason for warning in found] == [reasons.THRESHOLD_TOO_HIGH, reasons.OLD_SPELLING]


def test_both_spellings_at_once_are_a_mistake() -> None:
    provisioner = external()["externalProvisioner"]
    assert "remove external" in problems(diskConfig={"external": provisioner, "externalProvisioner": provisioner})[0]
