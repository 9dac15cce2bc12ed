"""A pool that is in no store: what hosts tell of it becomes nodes and volumes again, and nothing of it is changed."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.adopting import Adoption, adopt
from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.backends.glusterfs.keeping import volume_config
from quartermaster.backends.glusterfs.model import Peer
from quartermaster.backends.glusterfs.survey import SURVEY, Survey, SurveyedBase
from quartermaster.cli.adopting import _assignment, _node_config, _storage_node
from quartermaster.host import Daemon
from quartermaster.host.fake.machine import ROOT, FakeProcess
from quartermaster.planning.cluster import VolumeView
from quartermaster.resources.marks import NODE_FINALIZER
from tests.backends.conformance.bench import NAMESPACE

from .modelled import GIB, VOLUME, Cluster

BRICKS = "/srv/bricks"
BY_HAND = "by-hand"
LOOKS = ("pool", "volume info", "volume status", "volume heal", "volume quota pvc-1 list")


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


async def surveys_of(cluster: Cluster) -> dict[str, Survey]:
    found = {}
    agent = cluster.bench._agents[SURVEY]
    for host in cluster.bench.machines:
        assignment = _assignment(NAMESPACE, host, SURVEY, {})
        context = with_fields(cluster.bench.context(host, agent), assignment=assignment)
        told = await agent.configure_local_service(context)
        found[host] = msgspec.convert(msgspec.json.decode(msgspec.json.encode(told)), Survey)
    return found


def lose_the_store(cluster: Cluster) -> None:
    bench = cluster.bench
    bench.assignments.clear()
    bench.nodes.clear()
    bench.volumes.clear()
    bench.memory.clear()


def write(cluster: Cluster, found: Adoption) -> None:
    """As `qm adopt --yes` does."""
    bench = cluster.bench
    for node in found.nodes:
        made = _assignment(NAMESPACE, node.host, "glusterd", _node_config(found.key, node))
        bench.assignments[made.metadata.name] = made
        declared = _storage_node(found.key, node)
        metadata = replace(declared.metadata, finalizers=(NODE_FINALIZER,))
        bench.nodes[node.name] = replace(declared, metadata=metadata)
    for volume in found.volumes:
        bench.volumes[volume.name] = VolumeView(
            volume.name, volume.size, volume.placement.hosts, dict(volume.placement.details)
        )


async def test_nodes_and_volumes_are_what_they_were(cluster: Cluster) -> None:
    before = dict(cluster.bench.volumes)
    surveys = await surveys_of(cluster)
    lose_the_store(cluster)
    found = adopt(surveys, NAMESPACE)
    assert found.mistakes == ()
    assert [(node.name, node.host, [disk.path for disk in node.disks]) for node in found.nodes] == [
        (host, host, ["/dev/vdb"]) for host in ("h1", "h2", "h3")
    ]
    (volume,) = found.volumes
    assert (volume.name, volume.size, volume.claim, volume.ours) == (VOLUME, GIB, f"{NAMESPACE}/claim", True)
    assert volume.placement.details["bricks"] == before[VOLUME].details["bricks"]
    assert volume.placement.details["layout"] == before[VOLUME].details["layout"]


async def test_what_was_written_down_is_served_again_and_nothing_of_it_is_changed(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    disks = {host: cluster.bench.state(host)["disks"] for host in cluster.bench.machines}
    lose_the_store(cluster)
    cluster.gluster.commands_run.clear()
    write(cluster, adopt(surveys, NAMESPACE))
    plan = await cluster.rounds(6)
    assert plan.ready.holds, plan.ready.message
    assert not plan.degraded.holds, plan.degraded.message
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert {host: cluster.bench.state(host)["disks"] for host in cluster.bench.machines} == disks
    asked = {" ".join(argv[3:]) for _, argv in cluster.gluster.commands_run}
    assert [words for words in asked if not words.startswith(LOOKS)] == []
    assert not cluster.gluster.is_lost(VOLUME)


async def test_all_mistakes_are_told_at_once(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    stranger = Peer("00000000-0000-0000-0000-000000000009", ("10.0.0.9",), connected=True)
    surveys["h1"] = replace(surveys["h1"], peers=(*surveys["h1"].peers, stranger))
    path, base = next(iter(surveys["h2"].bases.items()))
    assert base.identity is not None
    surveys["h2"] = replace(
        surveys["h2"], bases={path: SurveyedBase(base.total, replace(base.identity, uuid="another"))}
    )
    found = adopt(surveys, "elsewhere", cluster="other")
    assert len(found.mistakes) == 4
    text = "\n".join(found.mistakes)
    for part in ("use -n storage", "other was asked for", "let it join, or give it up", "belongs to another glusterd"):
        assert part in text


async def test_a_peer_that_is_given_up_by_name_is_no_mistake_and_its_bricks_are_known_as_lost(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    del surveys["h3"]
    address = cluster.bench.address("h3")
    assert len(adopt(surveys, NAMESPACE).mistakes) == 1
    found = adopt(surveys, NAMESPACE, lost=[address])
    assert found.mistakes == ()
    assert [brick["host"] for brick in found.volumes[0].placement.details["bricks"]] == ["h1", "h2", address]


async def by_hand(cluster: Cluster) -> None:
    """Three hosts with a glusterd that somebody started, and a volume in directories that are his."""
    gluster, bench = cluster.gluster, cluster.bench
    bench.add("h1", "h2", "h3")
    await surveys_of(cluster)  # the model knows a host when something was asked there
    for machine in bench.machines.values():
        machine.directories[ROOT.number, BRICKS] = None
        machine.processes[DAEMON] = FakeProcess(Daemon(DAEMON, argv=("glusterd",)), pid=1)
    first, *others = (bench.address(host) for host in bench.machines)
    for address in others:
        gluster.probe(first, address)
    gluster.create(first, BY_HAND, (3, 0, False), [f"{one}:{BRICKS}/{BY_HAND}" for one in (first, *others)])
    gluster.start(first, BY_HAND, force=False)
    bench.nodes.clear()


async def test_a_pool_that_was_made_by_hand_is_marked_and_else_left_as_it_is(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    before = dict(cluster.gluster.volume(cluster.bench.address("h1"), BY_HAND).options)
    found = adopt(await surveys_of(cluster), NAMESPACE, cluster="old")
    assert found.mistakes == ()
    assert found.key.name == "old"
    assert [(node.name, node.disks, node.directories) for node in found.nodes] == [
        (host, (), (BRICKS,)) for host in ("h1", "h2", "h3")
    ]
    (volume,) = found.volumes
    assert (volume.name, volume.ours, volume.claim) == (BY_HAND, False, "")
    assert volume.size > 0
    cluster.bench.key = found.key
    write(cluster, found)
    config = volume_config(BY_HAND, volume.size, volume.placement.details, "h1", existing=True)
    made = _assignment(NAMESPACE, "h1", "glusterfs-volume", {**config, "adopted": True}, BY_HAND)
    cluster.bench.assignments[made.metadata.name] = made
    plan = await cluster.rounds(6)
    assert plan.ready.holds, plan.ready.message
    after = cluster.gluster.volume(cluster.bench.address("h1"), BY_HAND)
    added = {name: value for name, value in after.options.items() if before.get(name) != value}
    assert added == {
        "user.quartermaster.owner": f"{NAMESPACE}/old",
        "user.quartermaster.size": str(volume.size),
        "user.quartermaster.adopted": "true",
    }
    assert [brick.path for brick in after.bricks] == [f"{BRICKS}/{BY_HAND}"] * 3


async def test_without_a_glusterd_that_runs_nothing_can_be_adopted() -> None:
    assert adopt({"h1": Survey()}, NAMESPACE).mistakes == ("glusterd runs on none of the hosts",)
