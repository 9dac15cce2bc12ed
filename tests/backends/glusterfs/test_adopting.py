"""A pool that is in no store: what hosts tell of it becomes nodes and volumes again, and nothing of it is changed."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from quartermaster.backends.assigning import first_assignment
from quartermaster.backends.base import Volume
from quartermaster.backends.glusterfs.adopter import GlusterAdopter, adoption_of
from quartermaster.backends.glusterfs.adopting import FoundPool, find
from quartermaster.backends.glusterfs.daemon import DAEMON, recorded_identity
from quartermaster.backends.glusterfs.fake import FOREIGN
from quartermaster.backends.glusterfs.keeping import volume_config
from quartermaster.backends.glusterfs.model import Peer
from quartermaster.backends.glusterfs.reasons import NOT_THERE
from quartermaster.backends.glusterfs.survey import SURVEY, Survey, SurveyedBase
from quartermaster.host import Daemon
from quartermaster.host.fake.machine import ROOT, FakeProcess
from quartermaster.planning.cluster import Desired, VolumeView
from quartermaster.resources.marks import NODE_FINALIZER
from quartermaster.resources.orchestration import SUCCEEDED, assignment_name
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
        assignment = first_assignment(NAMESPACE, Desired(host, SURVEY, {}))
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


def write(cluster: Cluster, found: FoundPool) -> None:
    """As `qm adopt --yes` does."""
    bench, adoption = cluster.bench, adoption_of(found)
    for adopted in adoption.volumes:
        volume = adopted.volume
        placed = volume.placement
        bench.volumes[volume.name] = VolumeView(volume.name, volume.size, placed.hosts, dict(placed.details))
    for desired in adoption.assignments:
        bench.ask(desired)
    for node in adoption.nodes:
        metadata = replace(node.metadata, finalizers=(NODE_FINALIZER,))
        bench.nodes[node.metadata.name] = replace(node, metadata=metadata)
    bench.memory = dict(GlusterAdopter().remember(bench.memory, adoption))


async def test_nodes_and_volumes_are_what_they_were(cluster: Cluster) -> None:
    before = dict(cluster.bench.volumes)
    surveys = await surveys_of(cluster)
    lose_the_store(cluster)
    found = find(surveys, NAMESPACE)
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
    write(cluster, find(surveys, NAMESPACE))
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
    found = find(surveys, "elsewhere", cluster="other")
    assert len(found.mistakes) == 4
    text = "\n".join(found.mistakes)
    for part in ("use -n storage", "other was asked for", "let it join, or give it up", "belongs to another glusterd"):
        assert part in text


async def test_a_host_with_old_bricks_and_no_glusterd_is_told_to_start_it_or_to_leave(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    left = replace(Survey(), disks=surveys["h3"].disks, bases=surveys["h3"].bases)
    said = "host h4 has bricks, and no glusterd runs there: start it if it is one of this pool, else `qm leave` on h4"
    assert find({**surveys, "h4": left}, NAMESPACE).mistakes == (f"{said} takes the host out",)


async def test_a_host_whose_glusterd_is_in_another_pool_is_told_so(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    other = Survey(uuid="another", runs=True, disks=surveys["h3"].disks)
    said = "host h4 has bricks, and its glusterd (another) is in another pool; `qm leave` on h4 takes the host out"
    assert find({**surveys, "h4": other}, NAMESPACE).mistakes == (said,)


async def test_a_peer_that_is_given_up_by_name_is_no_mistake_and_its_bricks_are_known_as_lost(cluster: Cluster) -> None:
    address = cluster.bench.address("h3")
    cluster.lose("h3")
    surveys = {host: told for host, told in (await surveys_of(cluster)).items() if host != "h3"}
    assert len(find(surveys, NAMESPACE).mistakes) == 1
    found = find(surveys, NAMESPACE, lost=[address])
    assert found.mistakes == ()
    assert [brick["host"] for brick in found.volumes[0].placement.details["bricks"]] == ["h1", "h2", address]


async def test_a_peer_that_answers_cannot_be_given_up(cluster: Cluster) -> None:
    surveys = await surveys_of(cluster)
    del surveys["h3"]
    found = find(surveys, NAMESPACE, lost=[cluster.bench.address("h3"), "10.9.9.9"])
    assert len(found.mistakes) == 2
    assert "it answers; let its host join" in found.mistakes[0]
    assert "10.9.9.9: the pool has no such peer" in found.mistakes[1]


@pytest.mark.slow
async def test_a_peer_that_was_given_up_leaves_the_pool_when_its_bricks_are_elsewhere(cluster: Cluster) -> None:
    bench, address = cluster.bench, cluster.bench.address("h3")
    bench.add("h4")
    await cluster.rounds(4)
    cluster.lose("h3")
    surveys = {host: told for host, told in (await surveys_of(cluster)).items() if host != "h3"}
    lose_the_store(cluster)
    found = find(surveys, NAMESPACE, lost=[address])
    assert found.mistakes == ()
    assert found.given_up == {cluster.gluster.uuid(address): address}
    write(cluster, found)
    plan = await cluster.rounds(12)
    assert cluster.bricks() == ["h1", "h2", "h4"]
    assert address not in cluster.gluster.pool_of(bench.address("h1")).members
    assert not plan.degraded.holds, plan.degraded.message
    assert not cluster.gluster.is_lost(VOLUME)


async def test_a_host_that_the_pool_knows_by_another_address_than_its_first_is_written_with_that(
    cluster: Cluster,
) -> None:
    surveys = await surveys_of(cluster)
    addresses = {host: (cluster.bench.address(host),) for host in surveys}
    assert [node.addresses for node in find(surveys, NAMESPACE, addresses=addresses).nodes] == [()] * 3
    second = {**addresses, "h3": ("192.168.0.3", *addresses["h3"])}
    nodes = adoption_of(find(surveys, NAMESPACE, addresses=second)).nodes
    networks = [node.spec.storage_network for node in nodes]
    assert [one.ips if one is not None else () for one in networks] == [(), (), addresses["h3"]]
    (note,) = find(surveys, NAMESPACE, addresses={**addresses, "h3": ("192.168.0.3",)}).notes
    assert f"the pool knows host h3 as {addresses['h3'][0]}; new bricks are named 192.168.0.3" in note


@pytest.mark.parametrize(
    ("brick", "mounted", "why"),
    [
        ("/bricks", "/srv", "the brick /bricks is in the root of the host"),
        ("/data/one", "/data/one", "the brick /data/one is a file system of its own"),
        ("/data/one/brick", "/data/one", ""),
    ],
)
async def test_a_brick_that_has_no_directory_for_bricks_around_it_is_a_mistake(
    tmp_path: Path, brick: str, mounted: str, why: str
) -> None:
    cluster = Cluster(tmp_path)
    gluster, bench = cluster.gluster, cluster.bench
    bench.add("h1")
    await surveys_of(cluster)
    machine, address = bench.machines["h1"], bench.address("h1")
    machine.processes[FOREIGN] = FakeProcess(Daemon(FOREIGN, argv=("glusterd",)), pid=1)
    disk = machine.disks["/dev/vdb"]
    machine.mounts.append(replace(ROOT, id=77, source=disk.path, target=mounted, number=disk.number))
    for number, path in ((disk.number, mounted), (ROOT.number, "/data"), (ROOT.number, "/")):
        machine.directories[number, path] = None
    gluster.create(address, BY_HAND, (1, 0, False), [f"{address}:{brick}"])
    mistakes = find(await surveys_of(cluster), NAMESPACE, cluster="old").mistakes
    assert len(mistakes) == (1 if why else 0), mistakes
    assert all(why in one for one in mistakes)


async def by_hand(cluster: Cluster) -> None:
    """Three hosts with a glusterd that somebody started, and a volume in directories that are his."""
    gluster, bench = cluster.gluster, cluster.bench
    bench.add("h1", "h2", "h3")
    await surveys_of(cluster)  # the model knows a host when something was asked there
    for machine in bench.machines.values():
        machine.directories[ROOT.number, BRICKS] = None
        machine.processes[FOREIGN] = FakeProcess(Daemon(FOREIGN, argv=("glusterd",)), pid=1)
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
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
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


async def test_a_volume_that_was_made_by_hand_stays_as_it_is_when_another_host_takes_it_over(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    cluster.bench.key = found.key
    write(cluster, found)
    await cluster.rounds(6)
    volume = cluster.gluster.volume(cluster.bench.address("h2"), BY_HAND)
    before = dict(volume.options)
    cluster.lose("h1")
    await cluster.rounds(6)
    kept = [one.spec.host for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-volume"]
    assert kept[-1] != "h1"
    assert (volume.options, volume.limit) == (before, 0)


async def test_who_takes_a_volume_over_sees_on_itself_that_it_was_made_by_hand(tmp_path: Path) -> None:
    """An earlier version did not tell him."""
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    cluster.bench.key = found.key
    write(cluster, found)
    await cluster.rounds(6)
    volume = cluster.gluster.volume(cluster.bench.address("h2"), BY_HAND)
    before = dict(volume.options)
    (adopted,) = found.volumes
    config = volume_config(BY_HAND, adopted.size, adopted.placement.details, "h2", existing=True)
    assert config.pop("adopted")
    cluster.bench.ask(Desired("h2", "glusterfs-volume", config, BY_HAND))
    await cluster.bench.work()
    assert cluster.bench.assignments[assignment_name("glusterfs-volume", "h2", BY_HAND)].status.state == SUCCEEDED
    assert (volume.options, volume.limit) == (before, 0)


async def test_a_volume_that_was_made_by_hand_is_so_still_when_it_is_adopted_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    cluster.bench.key = found.key
    write(cluster, found)
    await cluster.rounds(6)
    (volume,) = find(await surveys_of(cluster), NAMESPACE, cluster="old").volumes
    assert not volume.ours
    assert volume_config(BY_HAND, volume.size, volume.placement.details, "h1", existing=True)["adopted"]


@pytest.mark.parametrize("told", [{"existing": True}, {}], ids=["as it was adopted", "as an earlier version grew it"])
async def test_a_volume_that_was_made_by_hand_and_is_gone_is_never_made_anew(
    tmp_path: Path, told: dict[str, bool]
) -> None:
    """Somebody deletes it before the host that is to keep it has looked, and its claim grows."""
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    cluster.bench.key = found.key
    write(cluster, found)
    bench, pool = cluster.bench, cluster.gluster.pool_of(cluster.bench.address("h1"))
    del pool.volumes[BY_HAND]
    (adopted,) = found.volumes
    view = await bench.view()
    wanted = bench.backend.volumes().desired_now(Volume(BY_HAND, 2 * GIB, adopted.placement), view)
    assert wanted.config is not None
    assert wanted.config["existing"]
    bench.ask(replace(wanted, config={**wanted.config, "existing": False, **told}))
    await cluster.rounds(4)
    assert bench.assignments[assignment_name(wanted.agent, wanted.host, BY_HAND)].status.reason == NOT_THERE
    assert pool.volumes == {}


@pytest.mark.parametrize("was_found_before", [True, False])
async def test_where_somebody_else_runs_glusterd_none_is_started_while_his_is_down(
    tmp_path: Path, was_found_before: bool
) -> None:
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    bench = cluster.bench
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    bench.key = found.key
    write(cluster, found)
    if was_found_before:
        await cluster.rounds(2)
    his = bench.machines["h3"].processes[FOREIGN]
    his.lives = False
    await cluster.rounds(2)
    node = bench.assignments[assignment_name("glusterd", "h3")]
    assert "it was started by somebody else, and does not answer" in node.status.message
    assert DAEMON not in bench.machines["h3"].processes
    his.lives = True
    await cluster.rounds(3)
    assert bench.assignments[node.metadata.name].status.state == SUCCEEDED
    identity = recorded_identity(bench.context("h3", bench._agents["glusterd"]).directory)
    assert identity is not None
    assert (identity.uuid, identity.own) == (cluster.gluster.uuid(bench.address("h3")), False)


async def test_without_a_glusterd_that_runs_nothing_can_be_adopted() -> None:
    assert find({"h1": Survey()}, NAMESPACE).mistakes == ("glusterd runs on none of the hosts",)
