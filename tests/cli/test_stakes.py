"""What `qm node remove --lost` says of volumes before anything is lost: what the storage system knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from quartermaster.backends.base import Placement, Volume
from quartermaster.engine.election import LEADER_LEASE
from quartermaster.planning.cluster import ClusterKey
from quartermaster.provisioning.intent import Record, with_record
from quartermaster.resources import Host, Lease, PersistentVolume, StorageNode, from_document
from quartermaster.resources.kubernetes.core import ConfigMap, LeaseSpec
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import SUCCEEDED, Assignment, AssignmentSpec, AssignmentStatus
from quartermaster.support import clock
from tests.cli.conftest import Cli
from tests.cli.test_volume import store_url, write

__all__ = ["store_url"]

COPIES = {"replicas": 3}
TWO_AND_AN_ARBITER = {"replicas": 3, "arbiter": True}
TWO_PARTS_AND_ONE = {"data": 2, "redundancy": 1}
UNLESS = "lost with h1 unless other hosts that have them come back: default/data\n"
THERE = "other hosts that answer have all of them: default/data\n"
NOBODY = "what only h1 has of them is lost, and nobody knows whether others that answer have all of it: default/data\n"


def three(url: str, *answering: str, type: str = "glusterfs") -> None:
    for name in ("h1", "h2", "h3"):
        meta = {"name": name, "namespace": "default"}
        spec = {"type": type, "nodeSelector": {HOSTNAME_LABEL: name}, "devices": ["/dev/vdb"]}
        write(url, from_document(StorageNode, {"metadata": meta, "spec": spec, "status": {"host": name}}))
        state = "Ready" if name in answering else "Lost"
        host = {"metadata": {**meta, "labels": {HOSTNAME_LABEL: name}}, "status": {"state": state}}
        write(url, from_document(Host, host))


def leader(url: str) -> None:
    now = datetime.fromtimestamp(clock.wall_time(), UTC).isoformat()
    spec = LeaseSpec(holder_identity="leader", lease_duration_seconds=600, renew_time=now)
    write(url, Lease(metadata=ObjectMeta(name=LEADER_LEASE, namespace="default"), spec=spec))


def brick(host: str, suffix: str = "") -> dict[str, str]:
    return {"node": host, "host": host, "address": host, "base": "/b", "path": f"/b/pvc-1{suffix}"}


def volume(url: str, layout: Mapping[str, Any], *hosts: str, type: str = "glusterfs") -> None:
    spec = {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "default", "name": "data"}}
    made = from_document(PersistentVolume, {"metadata": {"name": "pvc-1"}, "spec": spec})
    placement = Placement(hosts, {"layout": dict(layout), "bricks": [brick(host) for host in hosts]})
    write(url, with_record(made, Record(ClusterKey("default", type, "default"), Volume("pvc-1", 1 << 30, placement))))


def told_by(url: str, host: str, *bricks: str) -> None:
    """What the host that looks at the pool has seen."""
    result = {"volumes": {"pvc-1": {"bricks": list(bricks)}}}
    write(
        url,
        Assignment(
            metadata=ObjectMeta(name=f"glusterfs-pool.{host}", namespace="default"),
            spec=AssignmentSpec(host=host, agent="glusterfs-pool", generation=1, desired={}),
            status=AssignmentStatus(state=SUCCEEDED, observed_generation=1, result=result),
        ),
    )


def said(cli: Cli) -> str:
    result = cli("node", "remove", "h1", "--lost", stdin="n\n")
    assert result.code == 130
    return result.err


BRICKS = ("h1:/b/pvc-1", "h2:/b/pvc-1", "h3:/b/pvc-1")


@pytest.mark.parametrize(
    ("layout", "answering", "sentence"),
    [
        pytest.param(COPIES, ("h2", "h3"), THERE, id="two other copies"),
        pytest.param(COPIES, ("h3",), THERE, id="one other copy"),
        pytest.param(TWO_AND_AN_ARBITER, ("h3",), UNLESS, id="only the arbiter"),
        pytest.param(TWO_PARTS_AND_ONE, ("h3",), UNLESS, id="one part where two are needed"),
        pytest.param(TWO_PARTS_AND_ONE, ("h2", "h3"), THERE, id="as many parts as are needed"),
    ],
)
def test_only_what_can_be_read_counts_as_a_copy(
    store_url: str, cli: Cli, layout: Mapping[str, Any], answering: tuple[str, ...], sentence: str
) -> None:
    leader(store_url)
    three(store_url, *answering)
    volume(store_url, layout, "h1", "h2", "h3")
    told_by(store_url, "h3", *BRICKS)
    assert sentence in said(cli)


def test_what_is_on_that_host_alone_is_lost_and_the_claims_are_named(store_url: str, cli: Cli) -> None:
    leader(store_url)
    three(store_url, "h2", "h3")
    volume(store_url, {"replicas": 1}, "h1")
    told_by(store_url, "h3", "h1:/b/pvc-1")
    told = said(cli)
    assert "lost with h1, and with what is in them: default/data\n" in told
    assert "Give up h1, and host h1 with what is on it alone? [y/N]" in told
    done = cli("node", "remove", "h1", "--lost", "--yes")
    assert done.out == "storagenode/h1 removed\n"
    assert "the claims of lost volumes stay until somebody deletes them: `qm delete pvc NAME`\n" in done.err


def test_a_brick_that_has_moved_is_not_on_the_host_where_it_was_placed(store_url: str, cli: Cli) -> None:
    leader(store_url)
    three(store_url, "h2", "h3")
    volume(store_url, {"replicas": 2}, "h1", "h3")
    told_by(store_url, "h3", "h2:/b/pvc-1.m1", "h3:/b/pvc-1")
    moves = msgspec.json.encode({"pvc-1": {"count": 1, "bricks": {"0": brick("h2", ".m1")}}}).decode()
    memory = ObjectMeta(name="quartermaster-glusterfs-default", namespace="default")
    write(store_url, ConfigMap(metadata=memory, data={"moves": moves}))
    assert "no volume has anything on h1\n" in said(cli)


def test_while_nobody_leads_no_copy_is_promised(store_url: str, cli: Cli) -> None:
    three(store_url, "h2", "h3")
    volume(store_url, COPIES, "h1", "h2", "h3")
    told_by(store_url, "h3", *BRICKS)
    assert NOBODY in said(cli)


def test_nor_before_anybody_has_looked_at_the_pool(store_url: str, cli: Cli) -> None:
    leader(store_url)
    three(store_url, "h2", "h3")
    volume(store_url, COPIES, "h1", "h2", "h3")
    assert NOBODY in said(cli)


def test_nor_of_a_storage_system_that_says_nothing_of_copies(store_url: str, cli: Cli) -> None:
    leader(store_url)
    three(store_url, "h2", "h3", type="torus")
    volume(store_url, {}, "h1", "h2", type="torus")
    assert NOBODY in said(cli)
