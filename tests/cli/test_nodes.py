"""`qm node`, and deleting Hosts: what is marked, what is waited for, and what is said before anything is lost."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.etcd.member import MemberConfig
from quartermaster.backends.etcd.memory import first_memory, to_object
from quartermaster.cli import hearing
from quartermaster.resources import Host, Lease, StorageCluster, StorageNode, from_document
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.marks import ABANDON, DRAIN, MAINTENANCE, NODE_FINALIZER
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores import open_store
from quartermaster.support import clock
from tests.cli.conftest import Cli
from tests.cli.test_clusters import marks_of
from tests.cli.test_volume import read, store_url, write

__all__ = ["store_url"]


def node(
    name: str = "n1", *, host: str = "h1", annotations: dict[str, str] | None = None, **details: Any
) -> StorageNode:
    return from_document(
        StorageNode,
        {
            "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
            "spec": {"type": "glusterfs"},
            "status": {"host": host, **details},
        },
    )


def host(state: str, name: str = "h1") -> Host:
    return from_document(Host, {"metadata": {"name": name, "namespace": "default"}, "status": {"state": state}})


def heartbeat(*, ago_s: float) -> Lease:
    then = datetime.fromtimestamp(clock.wall_time() - ago_s, UTC).isoformat()
    return Lease(
        metadata=ObjectMeta(name="heartbeat.h1", namespace="default"),
        spec=LeaseSpec(holder_identity="h1", lease_duration_seconds=40, renew_time=then),
    )


def become(url: str, state: str, message: str = "") -> None:
    """What the leader says of the node from now on."""

    async def work() -> None:
        store = await open_store(url)
        found = await store.get(StorageNode, "n1", "default")
        await store.update_status(replace(found, status=replace(found.status, state=state, message=message)))
        await store.close()

    asyncio.run(work())


def hear(url: str) -> None:
    """A beat of the host, whose clock goes behind."""

    async def work() -> None:
        store = await open_store(url)
        found = await store.get(Lease, "heartbeat.h1", "default")
        await store.update(replace(found, spec=replace(found.spec, lease_duration_seconds=41)))
        await store.close()

    asyncio.run(work())


def test_a_drain_is_marked_and_can_be_taken_back(store_url: str, cli: Cli) -> None:
    write(store_url, node())
    assert cli("node", "drain", "n1", "--no-wait").out == "storagenode/n1 is being drained\n"
    assert marks_of(store_url, StorageNode, "n1") == {DRAIN: "true"}
    assert cli("node", "drain", "n1", "--cancel", "--no-wait").out == "storagenode/n1 is not to be drained any more\n"
    assert cli("node", "remove", "n1", "--cancel").out == "storagenode/n1 was not being drained\n"
    assert marks_of(store_url, StorageNode, "n1") == {}


@pytest.mark.slow
def test_a_node_is_said_to_serve_again_when_it_does(store_url: str, cli: Cli) -> None:
    write(store_url, node(state="Draining"))
    cli("node", "drain", "n1", "--no-wait")
    for state in ("Drained", "Deploying"):
        become(store_url, state)
        result = cli("node", "drain", "n1", "--cancel", "--timeout", "0.2s")
        assert (result.code, result.out) == (1, "")
        assert "it goes on; `qm node drain n1` drains it after all" in result.err
        cli("node", "drain", "n1", "--no-wait")
    become(store_url, "Ready")
    assert cli("node", "drain", "n1", "--cancel").out == "storagenode/n1 serves again\n"
    cli("node", "drain", "n1", "--no-wait")
    become(store_url, "Degraded", "host h1 has been silent for too long")
    told = cli("node", "drain", "n1", "--cancel").out
    assert told == "storagenode/n1 is Degraded: host h1 has been silent for too long\n"


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
    write(store_url, node(state="Maintenance"), node("n2", state="Ready", annotations={MAINTENANCE: "fan"}))
    assert cli("node", "maintenance", "n1", "--reason", "fan").out == "storagenode/n1 is in maintenance\n"
    assert marks_of(store_url, StorageNode, "n1") == {MAINTENANCE: "fan"}
    assert cli("node", "maintenance", "n2", "--end").out == "storagenode/n2 is back at work\n"
    assert cli("node", "maintenance", "n2", "--end").out == "storagenode/n2 was not in maintenance\n"
    result = cli("node", "maintenance", "n2", "--timeout", "0.2s")
    assert "no operator has looked at it: is one running?" in result.err


def test_a_node_is_given_up_only_when_its_host_is_silent_and_somebody_said_yes(store_url: str, cli: Cli) -> None:
    write(store_url, node(), host("Ready"))
    result = cli("node", "remove", "n1", "--lost", "--yes")
    assert result.code == 1
    assert "cannot give up n1: its host h1 lives (it counts as silent after 30 s)" in result.err
    assert marks_of(store_url, StorageNode, "n1") == {}


def test_a_node_is_given_up_by_the_times_of_its_own_cluster(
    store_url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartermaster.cli.hearing._ELECTION_S", 0.1)
    settings = {"type": "glusterfs", "timings": {"unhealthyAfterSeconds": 0.4}}
    cluster = from_document(StorageCluster, {"metadata": {"name": "c", "namespace": "default"}, "spec": settings})
    write(store_url, node(state="Ready"), host("Ready"), cluster, heartbeat(ago_s=9))
    result = cli("node", "remove", "n1", "--lost", "--yes")
    assert result.code == 1
    assert "lives" not in result.err
    told = r"nobody who leads has called its host h1 silent \(last heard \d+ s ago; it counts as silent after 0.4 s"
    assert re.search(told, result.err)
    become(store_url, "Degraded", "host h1 has been silent for too long")
    assert cli("node", "remove", "n1", "--lost", "--yes").out == "storagenode/n1 removed\n"


def late(url: str) -> None:
    settings = {"type": "glusterfs", "timings": {"unhealthyAfterSeconds": 0.4}}
    cluster = from_document(StorageCluster, {"metadata": {"name": "c", "namespace": "default"}, "spec": settings})
    write(url, node(state="Ready"), host("Ready"), cluster, heartbeat(ago_s=9))


@pytest.mark.slow
def test_who_gives_up_a_host_that_has_just_died_waits_until_a_leader_notices(
    store_url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    late(store_url)
    notice = Thread(target=lambda: (time.sleep(1), become(store_url, "Degraded", "host h1 is silent")))
    notice.start()
    result = cli("node", "remove", "n1", "--lost", "--yes")
    notice.join()
    assert result.out == "storagenode/n1 removed\n"


@pytest.mark.slow
def test_and_is_refused_as_soon_as_the_host_is_heard(store_url: str, cli: Cli) -> None:
    late(store_url)
    beat = Thread(target=lambda: (time.sleep(1), hear(store_url)))
    beat.start()
    result = cli("node", "remove", "n1", "--lost", "--yes")
    beat.join()
    assert "its host h1 lives (last heard 0 s ago; it counts as silent after 0.4 s)" in result.err


def test_a_lost_node_is_given_up_only_when_somebody_has_said_yes(store_url: str, cli: Cli) -> None:
    write(store_url, node(), host("Lost"))
    nobody = cli("node", "remove", "n1", "--lost")
    assert nobody.code == 2
    assert "cannot ask: there is no terminal, and no answer on standard input; say --yes" in nobody.err
    done = cli("node", "remove", "n1", "--lost", "--yes")
    assert done.out == "storagenode/n1 removed\n"
    assert "the Host is still there; `qm delete host h1` forgets it, `qm volume unmount CLAIM --gone h1`" in done.err


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
    forced = cli("delete", "host", "h1", "--force")
    assert forced.out == 'host.orchestration.coreos.com "h1" deleted\n'
    assert "the agent on h1 lives and makes the Host again; `qm leave` on h1 takes it out for good\n" in forced.err


def test_who_deletes_a_silent_host_is_told_what_becomes_of_it_should_it_come_back(store_url: str, cli: Cli) -> None:
    write(store_url, host("Lost"))
    assert cli("delete", "host", "h1").err.endswith("should h1 come back, its agent makes the Host again\n")
    memory = first_memory("c", "h2", MemberConfig(member="etcd-1", address="10.0.0.1"))
    write(store_url, host("Lost"), to_object(memory, "default"))
    told = "after 10 min its certificate opens nothing, and it joins with a new token\n"
    assert cli("delete", "host", "h1").err.endswith(told)


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


def test_a_host_whose_clock_is_behind_is_not_given_up_while_it_is_heard(
    store_url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"type": "glusterfs", "timings": {"unhealthyAfterSeconds": 30}}
    cluster = from_document(StorageCluster, {"metadata": {"name": "c", "namespace": "default"}, "spec": settings})
    write(store_url, node(state="Degraded"), host("Ready"), cluster, heartbeat(ago_s=90))
    beats = iter(("7", "8"))

    async def beat(*_: object) -> str:
        return next(beats)

    monkeypatch.setattr(hearing, "_beat", beat)
    result = cli("node", "remove", "n1", "--lost", "--yes")
    assert result.code == 1
    assert "cannot give up n1: its host h1 lives" in result.err
    assert marks_of(store_url, StorageNode, "n1") == {}
