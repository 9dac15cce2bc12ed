"""A client that speaks exactly metac's protocol drives the hooks of cStor clusters through whole workflows.

The hooks are those of `qm cstor serve`, a process of its own: the client knows what that tells of itself, and no more.
"""

from __future__ import annotations

import ast
import asyncio
import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .metac_client import CREATED_FOR, Cluster, Document, Metac, post
from .metac_site import (
    CONFIG,
    NAME,
    NAMESPACE,
    PLAN,
    SET,
    STORAGE,
    change,
    condition,
    config,
    declared,
    fill,
    node,
    pool_cluster,
    pools,
    selector,
    status,
    storage_class,
    volume_of,
)
from .metac_world import (
    ATTACHMENT,
    CLAIM,
    DEVICE,
    DEVICE_CLAIM,
    HOSTNAME,
    INSTANCE,
    NODE,
    OPENEBS,
    POOL_CLUSTER,
    REPLICA,
    VOLUME,
    settle,
)

pytestmark = pytest.mark.slow

MADE = (PLAN, SET, STORAGE, CLAIM, VOLUME, ATTACHMENT, DEVICE, DEVICE_CLAIM, POOL_CLUSTER, INSTANCE)
LARGEST = 2**20


@pytest.fixture(scope="module")
def controllers() -> Iterator[list[Metac]]:
    program = ("-m", "quartermaster", "cstor", "serve", "--listen", "127.0.0.1:0", "--max-request-size", "1Mi")
    with subprocess.Popen([sys.executable, *program], stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            said = service.stderr.readline()
            found = re.match(r"hooks on (http://\S+):", said)
            assert found is not None, said
            yield asyncio.run(declared(found[1]))
        finally:
            service.terminate()
    assert service.returncode == 0


@pytest.fixture(scope="module")
def made(controllers: list[Metac]) -> Cluster:
    cluster = Cluster()
    for name in ("a", "b", "c", "d"):
        cluster.create(node(name, storage="yes"))
    cluster.create(storage_class())
    cluster.create(config())
    asyncio.run(settle(cluster, controllers))
    return cluster


@pytest.fixture
def cluster(made: Cluster) -> Cluster:
    """Four nodes, and a config that has come to its three pools."""
    return copy.deepcopy(made)


def place_replica(cluster: Cluster, host: str, volume: str) -> None:
    """A copy of a volume in the pool on this host."""
    (holder,) = [found["metadata"]["name"] for found in cluster.all(INSTANCE) if found["spec"]["hostName"] == host]
    labels = {"cstorpoolinstance.openebs.io/name": holder, "openebs.io/persistent-volume": volume}
    metadata = {"name": f"{volume}-{holder}", "namespace": OPENEBS, "labels": labels}
    kind = {"apiVersion": "cstor.openebs.io/v1", "kind": "CStorVolumeReplica"}
    cluster.create({**kind, "metadata": metadata, "status": {"phase": "Healthy"}})


def label(cluster: Cluster, name: str, **labels: str) -> None:
    found = cluster.get(NODE, name)
    assert found is not None
    found["metadata"]["labels"] |= labels
    cluster.update(found)


@pytest.mark.parametrize("name", ["metac_client", "metac_site", "metac_world"])
def test_the_client_imports_nothing_of_what_it_drives(name: str) -> None:
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imported
    assert [module for module in imported if module.partition(".")[0] == "quartermaster"] == []


async def test_creation(cluster: Cluster, controllers: list[Metac]) -> None:
    assert status(cluster)["phase"] == "Ready"
    assert set(pools(cluster)) == {"a", "b", "c"}
    counts = {group.partition(".")[0]: len(cluster.all(group)) for group in (PLAN, SET, STORAGE, CLAIM, ATTACHMENT)}
    assert list(counts.values()) == [1, 3, 6, 6, 6]
    for group in (PLAN, SET, STORAGE, CLAIM, ATTACHMENT, POOL_CLUSTER):
        assert all(CREATED_FOR in made["metadata"]["annotations"] for made in cluster.all(group))
    writes = len(cluster.writes)
    await settle(cluster, controllers)
    assert len(cluster.writes) == writes


async def test_a_pool_without_volumes_goes_when_fewer_are_allowed(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    for host in ("a", "c"):
        place_replica(cluster, host, "volume-1")
    change(cluster, minPoolCount=1, maxPoolCount=2)
    await settle(cluster, controllers)
    assert pools(cluster) == {host: before[host] for host in ("a", "c")}
    assert len(cluster.all(CLAIM)) == len(cluster.all(INSTANCE)) * 2 == 4
    change(cluster, maxPoolCount=4)
    await settle(cluster, controllers)
    assert set(pools(cluster)) == {"a", "c"}
    assert status(cluster)["phase"] == "Ready"


async def test_a_node_loses_its_label_and_another_takes_over(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    label(cluster, "b", storage="no")
    await settle(cluster, controllers)
    assert pools(cluster) == {"a": before["a"], "d": before["b"], "c": before["c"]}
    assert status(cluster)["phase"] == "Ready"


async def test_a_selector_changes_and_pools_go_where_it_allows(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    cluster.create(node("e", storage="yes"))
    change(cluster, allowedNodes=selector({HOSTNAME: "c"}, {HOSTNAME: "d"}, {HOSTNAME: "e"}))
    await settle(cluster, controllers)
    after = pools(cluster)
    assert set(after) == {"c", "d", "e"}
    assert after["c"] == before["c"]
    assert sorted((after["d"], after["e"])) == sorted((before["a"], before["b"]))
    assert status(cluster)["phase"] == "Ready"
    assert len(cluster.all(CLAIM)) == 6


async def test_a_node_is_removed_and_its_disks_go_to_another(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    cluster.delete(NODE, "b")
    await settle(cluster, controllers)
    assert pools(cluster) == {"a": before["a"], "d": before["b"], "c": before["c"]}
    assert status(cluster)["phase"] == "Ready"
    assert len(cluster.all(CLAIM)) == 6


async def test_disks_are_lost_and_others_take_their_places_in_one_update(
    cluster: Cluster, controllers: list[Metac]
) -> None:
    before, generation = pools(cluster), pool_cluster(cluster)["metadata"]["generation"]
    dead = before["a"][0], before["b"][1]
    volumes = frozenset(volume_of(cluster, device) for device in dead)
    await settle(cluster, controllers, volumes)
    after = pools(cluster)
    assert (after["a"][1], after["b"][0], after["c"]) == (before["a"][1], before["b"][0], before["c"])
    assert not {*dead} & {*after["a"], *after["b"]}
    assert pool_cluster(cluster)["metadata"]["generation"] == generation + 1
    assert len(cluster.all(STORAGE)) == 6
    assert [cluster.get(VOLUME, volume) for volume in volumes] == [None, None]


async def test_two_lost_in_one_group_are_told_and_left_alone(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    await settle(cluster, controllers, frozenset(volume_of(cluster, device) for device in before["a"]))
    assert pools(cluster) == before
    assert status(cluster)["phase"] == "Degraded"
    answer, reason, message = condition(cluster, "DiskLost")
    assert (answer, reason) == ("True", "GroupLost")
    assert all(device in message for device in before["a"])


async def test_a_pool_that_is_80_percent_full_gets_another_group(cluster: Cluster, controllers: list[Metac]) -> None:
    before = pools(cluster)
    fill(cluster, "a", 79)
    await settle(cluster, controllers)
    assert pools(cluster) == before
    fill(cluster, "a", 81)
    await settle(cluster, controllers)
    groups = [len(pool["dataRaidGroups"]) for pool in pool_cluster(cluster)["spec"]["pools"]]
    assert groups == [2, 1, 1]
    after = pools(cluster)
    assert after["a"][:2] == before["a"]
    assert (after["b"], after["c"]) == (before["b"], before["c"])
    assert status(cluster)["phase"] == "Ready"


async def test_a_full_pool_stays_as_it_is_where_expansion_is_disabled(
    cluster: Cluster, controllers: list[Metac]
) -> None:
    before = pools(cluster)
    change(cluster, poolConfig={"poolExpansion": {"disable": True}})
    fill(cluster, "a", 95)
    await settle(cluster, controllers)
    assert pools(cluster) == before
    assert condition(cluster, "Expanding")[:2] == ("True", "ExpansionDisabled")


async def test_a_larger_capacity_is_offered_for_the_disks_that_exist(
    cluster: Cluster, controllers: list[Metac]
) -> None:
    before = pools(cluster)
    change(cluster, diskConfig={"minCapacity": "20Gi"})
    await settle(cluster, controllers)
    assert pools(cluster) == before
    assert {storage["spec"]["capacity"] for storage in cluster.all(STORAGE)} == {"10Gi"}
    assert condition(cluster, "ReplacementOffered")[:2] == ("True", "DisksSmallerThanDeclared")


def existing_device(name: str, host: str) -> Document:
    return {
        "apiVersion": "openebs.io/v1alpha1",
        "kind": "BlockDevice",
        "metadata": {"name": name, "namespace": OPENEBS, "labels": {HOSTNAME: host, "use": "pools"}},
        "spec": {
            "path": f"/dev/{name}",
            "capacity": {"storage": 10 << 30},
            "details": {"deviceType": "disk", "serial": name},
            "nodeAttributes": {"nodeName": host},
        },
        "status": {"claimState": "Unclaimed", "state": "Active"},
    }


async def test_a_pool_cluster_that_exists_is_adopted(controllers: list[Metac]) -> None:
    cluster = Cluster()
    entries = []
    for host in ("c", "a", "b"):
        cluster.create(node(host, storage="yes"))
        names = [f"{host}-{number}" for number in (2, 1)]
        for name in names:
            cluster.create(existing_device(name, host))
        group = {"blockDevices": [{"blockDeviceName": name} for name in names]}
        settings = {"dataRaidGroupType": "mirror"}
        entries.append({"nodeSelector": {HOSTNAME: host}, "dataRaidGroups": [group], "poolConfig": settings})
    metadata = {"name": NAME, "namespace": OPENEBS}
    kind = {"apiVersion": "cstor.openebs.io/v1", "kind": "CStorPoolCluster"}
    cluster.create({**kind, "metadata": metadata, "spec": {"pools": entries}})
    await settle(cluster, controllers)
    before = pool_cluster(cluster)
    cluster.create(config(disks={"local": {"blockDeviceSelector": {"matchLabels": {"use": "pools"}}}}))
    await settle(cluster, controllers)
    after, (plan,) = pool_cluster(cluster), cluster.all(PLAN)
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert [entry["name"] for entry in plan["spec"]["nodes"]] == ["c", "a", "b"]
    assert len(cluster.all(POOL_CLUSTER)) == 1
    assert cluster.all(STORAGE) == []
    assert status(cluster)["phase"] == "Ready"


async def test_deletion_waits_for_volumes_and_then_takes_everything(cluster: Cluster, controllers: list[Metac]) -> None:
    place_replica(cluster, "a", "volume-1")
    (replica,) = cluster.all(REPLICA)
    cluster.delete(CONFIG, NAME, NAMESPACE)
    await settle(cluster, controllers)
    assert len(pools(cluster)) == 3
    assert "volume-1" in status(cluster)["message"]
    cluster.delete(REPLICA, replica["metadata"]["name"], OPENEBS)
    await settle(cluster, controllers)
    assert cluster.all(CONFIG) == []
    assert {group: len(cluster.all(group)) for group in MADE} == dict.fromkeys(MADE, 0)
    gone = [write.split()[1] for write in cluster.writes if write.startswith(("gone", "delete"))]
    first = [gone.index(kind) for kind in ("CStorPoolCluster", "VolumeAttachment", "PersistentVolumeClaim")]
    assert first == sorted(first)


def config_controller(controllers: list[Metac]) -> Metac:
    (found,) = [controller for controller in controllers if controller.watch == CONFIG]
    return found


def specs(cluster: Cluster) -> dict[tuple[str, str, str], Any]:
    return {place: document.get("spec") for place, document in cluster.documents.items()}


async def test_an_answer_to_an_old_request_makes_nothing_twice(cluster: Cluster, controllers: list[Metac]) -> None:
    """The caches of metac are late: it asks as if nothing were there yet, and applies the answer when all of it is."""
    early, before = copy.deepcopy(cluster), specs(cluster)
    early.documents = {place: found for place, found in early.documents.items() if place[0] in (NODE, CONFIG)}
    early.documents[CONFIG, NAMESPACE, NAME].pop("status")
    (watch,) = early.all(CONFIG)
    controller = config_controller(controllers)
    answer = await controller.call(early, watch)
    assert [document["kind"] for document in answer["attachments"]] == ["CStorClusterPlan"]
    controller.apply(cluster, watch, answer, finalizing=False)
    await settle(cluster, controllers)
    assert specs(cluster) == before
    assert status(cluster)["phase"] == "Ready"


def wrong_requests(request: Document) -> dict[str, tuple[bytes, int, str]]:
    """What is sent, and the status and the reason that it gets."""

    def body(**parts: Any) -> bytes:
        return json.dumps({**request, **parts}).encode()

    watch, groups = request["watch"], request["attachments"]
    going = {**watch, "metadata": {**watch["metadata"], "deletionTimestamp": "2020-01-02T00:00:00Z"}}
    unknown = {**watch, "metadata": {name: text for name, text in watch["metadata"].items() if name != "uid"}}
    (device, *_) = groups[DEVICE].values()
    return {
        "malformed": (body()[:-1], 400, "BadJSON"),
        "huge": (body(padding="x" * LARGEST), 413, "TooLarge"),
        "watch of another kind": (body(watch=device), 422, "WrongKind"),
        "device of another kind": (body(attachments={**groups, DEVICE: groups[NODE]}), 422, "WrongKind"),
        "kind left out": (body(attachments={g: d for g, d in groups.items() if g != DEVICE}), 422, "MissingKind"),
        "watch that is being deleted": (body(watch=going), 409, "Stale"),
        "end of what is not being deleted": (body(finalizing=True), 409, "Stale"),
        "watch without uid": (body(watch=unknown), 409, "Stale"),
        "number that is none": (body(watch={**watch, "spec": {"minPoolCount": "three"}}), 422, "Invalid"),
    }


async def test_wrong_requests_are_refused_with_a_reason_and_change_nothing(
    cluster: Cluster, controllers: list[Metac]
) -> None:
    controller = config_controller(controllers)
    (watch,) = cluster.all(CONFIG)
    wrong = wrong_requests(controller.request(cluster, watch))
    answers = {name: await post(f"{controller.url}/sync/{controller.name}", wrong[name][0]) for name in wrong}
    assert {name: (answer.status, answer.json()["reason"]) for name, answer in answers.items()} == {
        name: (code, reason) for name, (_, code, reason) in wrong.items()
    }
    messages = {name: answer.json()["message"] for name, answer in answers.items()}
    assert {name: text for name, text in messages.items() if "cannot " not in text} == {}
    writes = len(cluster.writes)
    await settle(cluster, controllers)
    assert len(cluster.writes) == writes
