"""`qm status`, `plan`, `pause`, `resume` and `approve`: what they print, what they mark, how they end."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.etcd.member import MemberConfig
from quartermaster.backends.etcd.memory import first_memory, to_object
from quartermaster.engine import Election
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning.intent import Intent, open_seal
from quartermaster.resources import (
    ConfigMap,
    Host,
    PersistentVolumeClaim,
    StorageNode,
    StorageStatus,
    from_document,
    to_document,
)
from quartermaster.resources.marks import (
    APPROVED,
    CLUSTER_LABEL,
    DRAIN,
    OBSERVE_ONLY,
    PAUSED,
    SETTINGS_NAME,
)
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores import open_store
from tests.cli.conftest import Cli, interrupt
from tests.cli.test_volume import read, store_url, write

__all__ = ["store_url"]

DIGEST = "0123456789ab"


def status(name: str = "c1", said: str = "ONLINE", **details: Any) -> StorageStatus:
    return from_document(
        StorageStatus,
        {
            "metadata": {"name": f"glusterfs-{name}", "namespace": "default", "labels": {CLUSTER_LABEL: name}},
            "spec": {"type": "glusterfs", "status": said},
            "status": {"message": "two nodes are missing", "nodeCount": 1, "readyCount": 0, **details},
        },
    )


def host(state: str) -> Host:
    return from_document(Host, {"metadata": {"name": "h1", "namespace": "default"}, "status": {"state": state}})


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody led."""

    async def always(*_: object) -> bool:
        return True

    monkeypatch.setattr("quartermaster.cli.statuses.somebody_leads", always)


def unserved(name: str = "n9") -> StorageNode:
    """As the leader leaves a node of a type that it has no backend for."""
    message = "no backend for the type nfs is installed in the operator of this namespace"
    accepted = {"type": "Accepted", "status": "False", "reason": "NoBackend", "message": message}
    return from_document(
        StorageNode,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "nfs"},
            "status": {"state": "Failed", "message": message, "conditions": [accepted]},
        },
    )


def marks_of(url: str, kind: type[Any], name: str) -> dict[str, str]:
    found: dict[str, str] = read(url, kind, name, "default").metadata.annotations
    return found


def test_status_shows_clusters_and_what_their_nodes_wait_for(store_url: str, cli: Cli, led: None) -> None:
    nodes = [{"name": "n1", "host": "h1", "zone": 2, "state": "Failed", "message": "mkfs.xfs is not installed"}]
    capacity = {"total": "10Ti", "used": "512Gi"}
    write(store_url, status(nodes=nodes, capacity=capacity, nodeCount=3))
    result = cli("status")
    assert result.code == 0
    assert result.lines[1].split() == [
        "glusterfs-c1",
        "ONLINE",
        "3",
        "0",
        "512",
        "GiB",
        "10",
        "TiB",
        "two",
        "nodes",
        "are",
        "missing",
    ]
    assert result.lines[4].split()[:5] == ["n1", "glusterfs-c1", "h1", "2", "Failed"]
    assert result.lines[4].endswith("mkfs.xfs is not installed")
    assert result.lines[5] == "and 2 more nodes, which are ready: `qm get storagenodes`"


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_a_node_that_nothing_serves_is_shown_and_is_not_fine(
    store_url: str, cli: Cli, led: None, options: tuple[str, ...]
) -> None:
    write(store_url, unserved())
    for clusters in (False, True):
        if clusters:
            write(store_url, status(nodeCount=0))
        result = cli("status", *options)
        assert result.code == 1
        assert result.lines[-1].split()[:5] == ["n9", "<none>", "<none>", "<none>", "Failed"]
        assert "no backend for the type nfs is installed" in result.lines[-1]
    assert cli("status", "c1").code == 0
    assert "n9: no backend for the type nfs" in cli("status", "-o", "json").err


def test_a_plan_shows_a_node_that_nothing_serves_and_is_not_fine(store_url: str, cli: Cli) -> None:
    write(store_url, unserved())
    result = cli("plan")
    assert result.code == 1
    assert result.lines[-1].split()[:5] == ["n9", "Failed", "no", "backend", "for"]
    assert [one["name"] for one in json.loads(cli("plan", "-o", "json").out)["unserved"]] == ["n9"]


def test_a_plan_of_a_node_that_nothing_would_serve_is_not_fine(store_url: str, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text(json.dumps(to_document(unserved())))
    result = cli("plan", "-f", file)
    assert result.code == 1
    assert "no backend for the type nfs is installed" in result.out


def test_a_plan_says_that_nobody_leads(store_url: str, cli: Cli) -> None:
    write(store_url, host("Ready"), from_document(StorageNode, {"metadata": {"name": "n1"}, "spec": {"type": "local"}}))
    assert "note: nobody leads in default: the hosts are as the last leader left them" in cli("plan").err


def test_an_offline_cluster_never_has_the_reason_of_an_online_one(store_url: str, cli: Cli, led: None) -> None:
    online = {"type": "Online", "status": "True", "reason": "Ready", "message": "all 3 nodes are ready"}
    write(store_url, status(said="OFFLINE", conditions=[online], message="all 3 nodes are ready"))
    result = cli("status")
    assert "all 3 nodes are ready" not in result.out
    assert "waiting for the leader, which is about to write down what has changed" in result.out


def test_status_ends_with_1_while_something_is_offline_or_nothing_is_there(store_url: str, cli: Cli, led: None) -> None:
    assert cli("status").code == 1
    write(store_url, status("c1"), status("c2", "OFFLINE"))
    assert cli("status").code == 1
    assert cli("status", "c1").code == 0
    assert cli("status", "glusterfs-c2").code == 1


@pytest.mark.slow
def test_where_nobody_leads_a_status_is_said_to_be_old(
    store_url: str, cli: Cli, running: Callable[..., subprocess.Popen[str]]
) -> None:
    write(store_url, status())
    old = cli("status")
    assert (old.code, old.err) == (0, "note: nobody leads in default: this is how the last leader left it\n")
    waited = cli("status", "--wait", "--timeout", "0.2s")
    assert waited.code == 1
    assert "cannot see the clusters ONLINE within 0.2 s: nobody leads in default" in waited.err
    assert waited.err.endswith("; `qm up` starts this host\n")

    async def while_led() -> tuple[int, str]:
        store = await open_store(store_url)
        async with Election(store, name="quartermaster-leader-glusterfs").leading():
            looking = running("--store", store_url, "status", "--wait")
            _, err = await asyncio.to_thread(looking.communicate, timeout=30)
        await store.close()
        return looking.returncode, err

    assert asyncio.run(while_led()) == (0, "")


def test_status_for_programs_is_a_list_of_objects(store_url: str, cli: Cli) -> None:
    write(store_url, status())
    found = json.loads(cli("status", "-o", "json").out)
    assert [one["spec"]["status"] for one in found["items"]] == ["ONLINE"]
    assert cli("status", "-o", "wide").code == 2


def test_a_cluster_that_is_not_there_is_told_with_those_that_are(store_url: str, cli: Cli) -> None:
    write(store_url, status())
    for command in (["status", "c9"], ["pause", "c9"], ["resume", "c9"], ["approve", "c9"]):
        result = cli(*command)
        assert result.code == 1
        assert "cannot find the storage cluster c9 in default; there are glusterfs-c1" in result.err


@pytest.mark.slow
def test_waiting_for_a_status_ends_with_the_reason(store_url: str, cli: Cli) -> None:
    write(store_url, status(said="OFFLINE"))
    result = cli("status", "--wait", "--timeout", "0.3s")
    assert result.code == 1
    assert "cannot see the clusters ONLINE within 0.3 s: glusterfs-c1: two nodes are missing" in result.err


@pytest.mark.slow
def test_waiting_for_a_status_ends_when_it_is_online(
    store_url: str, running: Callable[..., subprocess.Popen[str]]
) -> None:
    """And somebody leads: nobody does in the beginning."""
    waiting = running("--store", store_url, "status", "c1", "--wait", "--timeout", "30s")
    write(store_url, status())
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("CLUSTER")
    assert "ONLINE" in waiting.stdout.readline()

    async def lead() -> int:
        store = await open_store(store_url)
        async with Election(store, name="quartermaster-leader").leading():
            code = await asyncio.to_thread(waiting.wait, timeout=30)
        await store.close()
        return code

    assert asyncio.run(lead()) == 0


@pytest.mark.parametrize("options", [(), ("--wait",), ("-o", "json"), ("--wait", "-o", "json")])
def test_a_status_of_nothing_says_so_at_once_whoever_waits(store_url: str, cli: Cli, options: tuple[str, ...]) -> None:
    result = cli("status", *options)
    assert result.code == 1
    assert "no storage cluster is declared in default: `qm apply -f FILE` declares storage nodes" in result.err
    assert not result.out or json.loads(result.out)["items"] == []


@pytest.mark.slow
def test_who_waits_for_what_nobody_looks_at_is_told_so(store_url: str, cli: Cli) -> None:
    write(store_url, from_document(StorageNode, {"metadata": {"name": "n1"}, "spec": {"type": "local"}}))
    result = cli("status", "--wait", "--timeout", "0.2s")
    assert result.code == 1
    assert "nobody leads in default to look at what is declared; `qm up` starts this host\n" in result.err
    write(store_url, status())
    result = cli("status", "c9", "--wait", "--timeout", "0.2s")
    assert result.code == 1
    assert "c9 is not there yet; there are glusterfs-c1\n" in result.err


@pytest.mark.slow
def test_ctrl_c_ends_the_looking(store_url: str, running: Callable[..., subprocess.Popen[str]]) -> None:
    write(store_url, status(said="OFFLINE"))
    waiting = running("--store", store_url, "status", "--wait")
    assert waiting.stdout is not None
    assert waiting.stdout.readline().startswith("CLUSTER")
    result = interrupt(waiting)
    assert result.code == 130
    assert "Traceback" not in result.err


def test_pause_and_resume_mark_clusters_and_name_the_store(store_url: str, cli: Cli) -> None:
    write(store_url, status("c1"), status("c2"))
    result = cli("pause", "c1", "--reason", "switch is replaced")
    assert result.out == "storagestatus/glusterfs-c1 paused\n"
    assert f"store: {store_url}" in result.err
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {PAUSED: "switch is replaced"}
    assert cli("pause", "--all").lines == ["storagestatus/glusterfs-c1 paused", "storagestatus/glusterfs-c2 paused"]
    assert cli("resume", "--all").lines == ["storagestatus/glusterfs-c1 resumed", "storagestatus/glusterfs-c2 resumed"]
    assert cli("resume", "c1").out == "storagestatus/glusterfs-c1 was not paused\n"
    assert marks_of(store_url, StorageStatus, "glusterfs-c2") == {}


def test_pause_wants_to_know_which(store_url: str, cli: Cli) -> None:
    for command in (["pause"], ["pause", "c1", "--all"]):
        result = cli(*command)
        assert result.code == 2
        assert "name them, or give --all" in result.err


def test_resume_without_a_name_ends_the_time_after_a_restore(store_url: str, cli: Cli) -> None:
    assert "the operator acts already" in cli("resume").out
    settings = ObjectMeta(name=SETTINGS_NAME, namespace="default", annotations={OBSERVE_ONLY: "restored"})
    write(store_url, ConfigMap(metadata=settings))
    assert cli("resume").out == "the operator acts again\n"
    assert marks_of(store_url, ConfigMap, SETTINGS_NAME) == {}


def test_resume_without_a_name_fails_where_a_cluster_is_still_paused_and_names_it(store_url: str, cli: Cli) -> None:
    write(store_url, status("c1"), status("c2"))
    assert cli("resume").code == 0
    cli("pause", "c1")
    result = cli("resume")
    assert result.code == 1
    assert "glusterfs-c1 is paused: `qm resume glusterfs-c1` goes on" in result.err
    assert "glusterfs-c2" not in result.err
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {PAUSED: "true"}


def test_an_approval_is_of_what_was_shown(store_url: str, cli: Cli) -> None:
    step = f"change glusterd on host h1 (StorageNode h1 declares it; what is on /dev/vdb is lost) [{DIGEST}]"
    condition = {
        "type": "ApprovalNeeded",
        "status": "True",
        "reason": "StepsWait",
        "message": f"`qm approve` lets these go on: {step}",
    }
    write(store_url, status("c1", conditions=[condition]), status("c2"))
    assert cli("approve", "c1", "--list").out == f"  {step}\n"
    assert cli("approve", "c1", stdin="n\n").code == 130
    nobody = cli("approve", "c1")
    assert nobody.code == 2
    assert "cannot ask: there is no terminal, and no answer on standard input; say --yes" in nobody.err
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {}
    assert cli("approve", "c1", "--yes").lines[-1] == "storagestatus/glusterfs-c1: 1 steps approved"
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {APPROVED: DIGEST}
    assert cli("approve", "c2").out == "nothing waits for an approval in glusterfs-c2\n"


def test_a_plan_of_nothing_says_so_and_writes_nothing(store_url: str, cli: Cli) -> None:
    assert cli("plan").out == "no storage cluster is declared in default\n"


def test_a_plan_shows_what_becomes_of_the_program_s_own_etcd(store_url: str, cli: Cli) -> None:
    memory = first_memory("c", "h1", MemberConfig(member="etcd-1", address="10.0.0.1"))
    write(store_url, host("Ready"), to_object(memory, "default"))
    assert cli("plan").out == (
        "no storage cluster is declared in default\n\netcd on h1: members: 1, and 1 are wanted\n  nothing to do\n"
    )
    assert json.loads(cli("plan", "-o", "json").out)["etcd"]["members"] == ["h1"]


def test_a_plan_shows_steps_and_troubles_of_declarations_that_are_not_there_yet(
    store_url: str, cli: Cli, tmp_path: Path
) -> None:
    write(store_url, host("Ready"))
    file = tmp_path / "node.yaml"
    file.write_text(
        "apiVersion: coreos.com/v1\nkind: StorageNode\nmetadata: {name: n1}\n"
        "spec: {type: local, nodeSelector: {kubernetes.io/hostname: h1}, directories: [/srv]}\n---\n"
        "apiVersion: coreos.com/v1\nkind: StorageNode\nmetadata: {name: n2}\n"
        "spec: {type: local, nodeSelector: {kubernetes.io/hostname: h2}, directories: [/srv]}\n"
    )
    result = cli("plan", "-f", file)
    assert result.code == 0
    assert "1      set up local default on host h1   StorageNode n1 declares it" in result.out
    assert "n2     Failed      no host has the labels kubernetes.io/hostname=h2" in result.out
    found = json.loads(cli("plan", "-f", file, "-o", "json").out)
    assert [step["what"] for step in found["clusters"][0]["steps"]] == ["set up local default on host h1"]
    assert "No resources found" in cli("get", "storagenodes").err


def local_node(name: str, cluster: str, *directories: str) -> StorageNode:
    return from_document(
        StorageNode,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "type": "local",
                "nodeSelector": {"kubernetes.io/hostname": "h1"},
                "directories": list(directories),
                "local": {"cluster": cluster},
            },
        },
    )


def test_a_plan_shows_what_the_cluster_would_refuse(store_url: str, cli: Cli, tmp_path: Path) -> None:
    write(store_url, host("Ready"), local_node("first", "a", "/srv/a", "/srv/c"))
    file = tmp_path / "node.json"
    for directories, state in ((("/srv/a",), "Pending"), (("/srv/a", "/srv/b"), "Deploying")):
        file.write_text(json.dumps(to_document(local_node("second", "b", *directories))))
        refused = next(line for line in cli("plan", "-f", file).lines if line.split()[:1] == ["second"])
        assert state in refused
        assert "/srv/a belongs to StorageNode first already" in refused
    found = json.loads(cli("plan", "-f", file, "-o", "json").out)["clusters"]
    assert [node["reason"] for one in found for node in one["nodes"]] == ["", "SameDirectory"]


def test_a_plan_counts_volumes_that_are_being_made(store_url: str, cli: Cli) -> None:
    """As the leader does, who keeps a node while a volume is promised on it."""
    made = local_node("n1", "a", "/srv/a")
    draining = replace(made, metadata=replace(made.metadata, annotations={DRAIN: "true"}))
    waiting = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    document = {"metadata": {"name": "data", "namespace": "default"}, "spec": waiting}
    write(store_url, host("Ready"), draining, from_document(PersistentVolumeClaim, document))

    async def promise() -> None:
        store = await open_store(store_url)
        claim = await store.get(PersistentVolumeClaim, "data", "default")
        volume = Volume("pvc-1", 1 << 30, Placement(("h1",), {"base": "/srv/a"}))
        intent = Intent(ClusterKey("default", "local", "a"), volume, "Delete")
        await store.update((await open_seal(store, "default")).write(claim, intent))
        await store.close()

    assert "nothing of it is left on its host" in cli("plan").out
    asyncio.run(promise())
    assert "it holds a volume that cannot move: default/data" in cli("plan").out
