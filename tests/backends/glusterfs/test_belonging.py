"""Directories in which others have something beside our bricks: what is theirs stays, and what is left of ours goes."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from quartermaster.backends.glusterfs.adopting import find
from quartermaster.backends.glusterfs.belonging import IDENTITY_FILE, BaseIdentity, bricks_of_ours
from quartermaster.backends.glusterfs.facts import BRICK_MARK
from quartermaster.host.fake import FakeMachine
from quartermaster.host.fake.directories import FakeDirectories
from quartermaster.host.fake.machine import ROOT
from quartermaster.planning.cluster import Desired
from quartermaster.resources.orchestration import SUCCEEDED, assignment_name
from tests.backends.conformance.bench import NAMESPACE

from .modelled import GIB, VOLUME, Cluster
from .test_adopting import BRICKS, by_hand, surveys_of, write

BASE = "/srv/a"
UID = "pvc-9c1d4f0e-54a1-4ac5-8f0a-0b5d5c1f6a11"


def put(machine: FakeMachine, path: str, *, marked: bool = False) -> None:
    """A directory; marked, glusterd has taken it for a brick once."""
    machine.directories[ROOT.number, path] = None
    if marked:
        machine.attributes[ROOT.number, path] = {BRICK_MARK: uuid4().bytes}


def inside(machine: FakeMachine, base: str) -> list[str]:
    found = [path.removeprefix(f"{base}/") for _, path in machine.directories if path.startswith(f"{base}/")]
    return sorted(name for name in found if not name.startswith(".quartermaster"))


async def adopted(cluster: Cluster) -> None:
    found = find(await surveys_of(cluster), NAMESPACE, cluster="old")
    assert found.mistakes == ()
    cluster.bench.key = found.key
    write(cluster, found)
    await cluster.rounds(6)


async def on_directories(tmp_path: Path) -> Cluster:
    """Four nodes, three of which have a copy in a directory that was declared."""
    cluster = Cluster(tmp_path)
    cluster.bench.add("h1", "h2", "h3", "h4", directories=[BASE])
    for machine in cluster.bench.machines.values():
        machine.directories[ROOT.number, BASE] = None
    await cluster.bench.settle()
    cluster.bench.online = True
    await cluster.bench.make(VOLUME, GIB)
    await cluster.rounds(2)
    return cluster


@pytest.mark.parametrize("name", ["pvc-foreign_default_db", UID, "photos"])
@pytest.mark.parametrize("marked", [False, True])
async def test_what_was_beside_the_bricks_of_an_adopted_pool_stays(tmp_path: Path, name: str, marked: bool) -> None:
    """Also a brick of a volume that was deleted before: gluster leaves its files there for whoever wants them."""
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    machine = cluster.bench.machines["h1"]
    put(machine, f"{BRICKS}/{name}", marked=marked)
    await adopted(cluster)
    assert inside(machine, BRICKS) == sorted(["by-hand", name])
    noted = msgspec.json.decode(machine.files[ROOT.number, f"{BRICKS}/{IDENTITY_FILE}"], type=BaseIdentity)
    assert noted.strangers == ((UID,) if marked and name == UID else ())


async def test_bricks_of_a_volume_that_was_adopted_are_ours_and_those_of_another_owner_are_not(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await by_hand(cluster)
    gluster, bench = cluster.gluster, cluster.bench
    addresses = [bench.address(host) for host in bench.machines]
    for name in (UID, "pvc-theirs"):
        gluster.create(addresses[0], name, (3, 0, False), [f"{address}:{BRICKS}/{name}" for address in addresses])
    gluster.set_options(addresses[0], "pvc-theirs", {"user.quartermaster.owner": "elsewhere/other"})
    gluster.start(addresses[0], UID, force=False)
    await adopted(cluster)
    gluster.delete(addresses[0], "pvc-theirs")
    del bench.volumes[UID]
    bench.ask(Desired("h1", "glusterfs-volume", None, UID))
    await cluster.rounds(4)
    assert [inside(machine, BRICKS) for machine in bench.machines.values()] == [["by-hand", "pvc-theirs"]] * 3


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_what_others_put_there_later_stays_and_keeps_nothing_from_being_given_up(
    tmp_path: Path, is_dropped: bool
) -> None:
    cluster = await on_directories(tmp_path)
    host = cluster.bench.volumes[VOLUME].hosts[0]
    machine = cluster.bench.machines[host]
    put(machine, f"{BASE}/{UID}")
    if is_dropped:
        cluster.bench.declare(host, devices=["/dev/vdb"])
    else:
        cluster.bench.mark(host, deleting=True)
    plan = await cluster.rounds(14)
    assert inside(machine, BASE) == [UID]
    if is_dropped:
        assert plan.degraded.reason == "Complete"
        told = cluster.bench.assignments[assignment_name("glusterd", host)].spec.desired or {}
        assert told["directories"] == []
    else:
        assert host in plan.removable
    assert not cluster.gluster.is_lost(VOLUME)


async def test_bricks_of_a_volume_that_was_deleted_while_their_host_was_away_go_when_it_is_back(tmp_path: Path) -> None:
    cluster = await on_directories(tmp_path)
    maker, *_, away = cluster.bench.volumes[VOLUME].hosts
    cluster.bench.silent.append(away)  # its agent: gluster deletes nothing while a glusterd is away
    del cluster.bench.volumes[VOLUME]
    cluster.bench.ask(Desired(maker, "glusterfs-volume", None, VOLUME))
    await cluster.rounds(4)
    assert [host for host, machine in cluster.bench.machines.items() if inside(machine, BASE)] == [away]
    cluster.come_back(away)
    await cluster.rounds(4)
    assert inside(cluster.bench.machines[away], BASE) == []


@pytest.mark.parametrize("name", ["pvc-2", "pvc-2.bcdfgh", "pvc-2.s1.bcdfgh", f"{VOLUME}.bcdfgh", f"{VOLUME}.m3"])
async def test_what_an_attempt_to_make_or_to_move_left_behind_goes(tmp_path: Path, name: str) -> None:
    """glusterd marks a directory before it knows whether the others can make theirs."""
    cluster = await on_directories(tmp_path)
    host = cluster.bench.volumes[VOLUME].hosts[1]
    machine = cluster.bench.machines[host]
    put(machine, f"{BASE}/{name}", marked=True)
    await cluster.rounds(4)
    assert inside(machine, BASE) == [VOLUME]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_a_name_like_ours_is_not_removed_because_a_leader_of_an_earlier_version_says_so(tmp_path: Path) -> None:
    cluster = await on_directories(tmp_path)
    machine, name = cluster.bench.machines["h4"], assignment_name("glusterd", "h4")
    put(machine, f"{BASE}/{UID}")
    put(machine, f"{BASE}/pvc-2", marked=True)
    desired = cluster.bench.assignments[name].spec.desired or {}
    cluster.bench.ask(Desired("h4", "glusterd", {**desired, "remove": [f"{BASE}/{UID}", f"{BASE}/pvc-2"]}))
    await cluster.bench.work()
    assert cluster.bench.assignments[name].status.state == SUCCEEDED
    assert inside(machine, BASE) == [UID]


async def test_only_of_bricks_a_removal_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    cluster = await on_directories(tmp_path)
    machine = cluster.bench.machines["h4"]
    put(machine, f"{BASE}/.{UID}.removing")
    put(machine, f"{BASE}/.pvc-2.removing", marked=True)
    await cluster.rounds(2)
    assert inside(machine, BASE) == [f".{UID}.removing"]


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        (UID, True),
        (f"{UID}.s1", True),
        (f"{UID}.m12", True),
        (f"{UID}.bcdfgh", True),
        (f"{UID}.s1.bcdfgh", True),
        (f"{UID}_default_db", False),
        (f"{UID}.bak", False),
        (f"{UID}.m1.bak", False),
        ("pvc-", False),
        ("photos", False),
    ],
)
async def test_only_names_that_we_give_are_ours(name: str, is_ours: bool) -> None:
    machine = FakeMachine()
    put(machine, f"{BASE}/{name}", marked=True)
    found = await bricks_of_ours(FakeDirectories(machine), BASE, BaseIdentity("storage/default", "h1", "u1"))
    assert found == ([name] if is_ours else [])
