"""`qm status`, `plan`, `pause`, `resume`, `approve` and `node`: what they print, what they mark, how they end."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.etcd.member import MemberConfig
from quartermaster.backends.etcd.memory import first_memory, to_object
from quartermaster.engine import Election
from quartermaster.resources import ConfigMap, Host, Lease, StorageNode, StorageStatus, from_document
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.marks import (
    ABANDON,
    APPROVED,
    CLUSTER_LABEL,
    DRAIN,
    MAINTENANCE,
    NODE_FINALIZER,
    OBSERVE_ONLY,
    PAUSED,
    SETTINGS_NAME,
)
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores import open_store
from quartermaster.support import clock
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


def node(name: str = "n1", *, host: str = "h1", **details: Any) -> StorageNode:
    return from_document(
        StorageNode,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "glusterfs"},
            "status": {"host": host, **details},
        },
    )


def host(state: str) -> Host:
    return from_document(Host, {"metadata": {"name": "h1", "namespace": "default"}, "status": {"state": state}})


def heartbeat(*, ago_s: float) -> Lease:
    then = datetime.fromtimestamp(clock.wall_time() - ago_s, UTC).isoformat()
    return Lease(
        metadata=ObjectMeta(name="heartbeat.h1", namespace="default"),
        spec=LeaseSpec(holder_identity="h1", lease_duration_seconds=40, renew_time=then),
    )


def marks_of(url: str, kind: type[Any], name: str) -> dict[str, str]:
    found: dict[str, str] = read(url, kind, name, "default").metadata.annotations
    return found


def test_status_shows_clusters_and_what_their_nodes_wait_for(store_url: str, cli: Cli) -> None:
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


def test_status_ends_with_1_while_something_is_offline_or_nothing_is_there(store_url: str, cli: Cli) -> None:
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
    assert cli("status").err == "note: nobody leads in default: this is how the last leader left it\n"

    async def while_led() -> str:
        store = await open_store(store_url)
        async with Election(store, name="quartermaster-leader-glusterfs").leading():
            _, err = await asyncio.to_thread(running("--store", store_url, "status").communicate, timeout=30)
        await store.close()
        return err

    assert asyncio.run(while_led()) == ""


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
    waiting = running("--store", store_url, "status", "c1", "--wait", "--timeout", "30s")
    write(store_url, status())
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 0
    assert err == "note: nobody leads in default: this is how the last leader left it\n"
    assert "ONLINE" in out


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
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {}
    assert cli("approve", "c1", "--yes").lines[-1] == "storagestatus/glusterfs-c1: 1 steps approved"
    assert marks_of(store_url, StorageStatus, "glusterfs-c1") == {APPROVED: DIGEST}
    assert cli("approve", "c2").out == "nothing waits for an approval in glusterfs-c2\n"


def test_a_drain_is_marked_and_can_be_taken_back(store_url: str, cli: Cli) -> None:
    write(store_url, node())
    assert cli("node", "drain", "n1", "--no-wait").out == "storagenode/n1 is being drained\n"
    assert marks_of(store_url, StorageNode, "n1") == {DRAIN: "true"}
    assert cli("node", "drain", "n1", "--cancel").out == "storagenode/n1 serves again\n"
    assert cli("node", "remove", "n1", "--cancel").out == "storagenode/n1 was not being drained\n"
    assert marks_of(store_url, StorageNode, "n1") == {}


def test_a_drain_that_is_refused_is_told_and_not_left_to_begin_one_day(store_url: str, cli: Cli) -> None:
    refusal = {"type": "Leaving", "status": "False", "reason": "TooSmall", "message": "10 TiB are in use"}
    write(store_url, node(conditions=[refusal], state="Ready"))
    for verb in ("drain", "remove"):
        result = cli("node", verb, "n1")
        assert result.code == 1
        assert "cannot drain n1: 10 TiB are in use" in result.err
        assert marks_of(store_url, StorageNode, "n1") == {}


@pytest.mark.slow
def test_a_drain_that_does_not_end_says_what_blocks_it(store_url: str, cli: Cli) -> None:
    write(store_url, node(state="Draining", message="it holds a volume that cannot move: pvc-1"))
    result = cli("node", "drain", "n1", "--timeout", "0.2s")
    assert result.code == 1
    assert "it holds a volume that cannot move: pvc-1" in result.err
    assert "--cancel" in result.err


def test_an_empty_node_is_removed(store_url: str, cli: Cli) -> None:
    write(store_url, node(state="Drained"))
    assert cli("node", "remove", "n1").out == "storagenode/n1 removed\n"
    assert "cannot find" in cli("get", "sn", "n1").err


@pytest.mark.slow
def test_maintenance_waits_for_its_state(store_url: str, cli: Cli) -> None:
    write(store_url, node(state="Maintenance"), node("n2", state="Ready"))
    assert cli("node", "maintenance", "n1", "--reason", "fan").out == "storagenode/n1 is in maintenance\n"
    assert marks_of(store_url, StorageNode, "n1") == {MAINTENANCE: "fan"}
    assert cli("node", "maintenance", "n2", "--end").out == "storagenode/n2 is back at work\n"
    result = cli("node", "maintenance", "n2", "--timeout", "0.2s")
    assert "no operator has looked at it: is one running?" in result.err


def test_a_node_is_given_up_only_when_its_host_is_silent_and_somebody_said_yes(store_url: str, cli: Cli) -> None:
    write(store_url, node(), host("Ready"))
    result = cli("node", "remove", "n1", "--lost", "--yes")
    assert result.code == 1
    assert "cannot give up n1: its host h1 lives (it counts as silent after 30 s)" in result.err
    assert marks_of(store_url, StorageNode, "n1") == {}


def test_a_host_that_lives_is_deleted_only_by_force(store_url: str, cli: Cli, tmp_path: Path) -> None:
    write(store_url, host("Ready"), heartbeat(ago_s=9))
    given = tmp_path / "host.yaml"
    given.write_text("apiVersion: orchestration.coreos.com/v1alpha1\nkind: Host\nmetadata: {name: h1}\n")
    for words in (("host", "h1"), ("host", "h1", "--dry-run"), ("-f", str(given)), ("hosts", "--all", "--yes")):
        result = cli("delete", *words)
        assert (result.code, result.out) == (1, "")
        assert re.search(
            r"cannot delete host h1: it lives \(last heard \d+ s ago; it counts as silent after 30 s\); `qm leave`",
            result.err,
        )
    assert cli("delete", "host", "h1", "--force").out == 'host.orchestration.coreos.com "h1" deleted\n'


def test_a_silent_host_is_deleted_when_no_storage_node_is_on_it(store_url: str, cli: Cli) -> None:
    write(store_url, node(), host("Lost"))
    result = cli("delete", "host", "h1")
    assert result.code == 1
    assert (
        "cannot delete host h1: it is the storage node n1; `qm node remove n1 --lost` gives it up first" in result.err
    )
    assert cli("node", "remove", "n1", "--lost", "--yes").code == 0
    assert cli("delete", "host", "h1").code == 0


def test_a_lost_node_is_marked_with_the_name_of_its_host_before_it_is_deleted(store_url: str, cli: Cli) -> None:
    held = node()
    held = replace(held, metadata=replace(held.metadata, finalizers=(NODE_FINALIZER,)))
    write(store_url, held, host("Lost"))
    assert cli("node", "remove", "n1", "--lost", stdin="n\n").code == 130
    assert marks_of(store_url, StorageNode, "n1") == {}
    assert cli("node", "remove", "n1", "--lost", "--no-wait", stdin="y\n").out == "storagenode/n1 is being removed\n"
    found = read(store_url, StorageNode, "n1", "default").metadata
    assert found.annotations == {ABANDON: "h1"}
    assert found.deletion_timestamp is not None
    result = cli("node", "remove", "n1", "--cancel")
    assert result.code == 1
    assert "it was deleted already" in result.err


def test_a_node_that_is_not_there_is_one_sentence(store_url: str, cli: Cli) -> None:
    for verb in ("drain", "remove", "maintenance"):
        result = cli("node", verb, "n9")
        assert result.code == 1
        assert 'cannot find storagenode "default/n9"' in result.err


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
