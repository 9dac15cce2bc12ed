"""Volumes that share exports, files, targets and LUNs, in any order of connects, disconnects, crashes and recoveries.

After every step the host is compared with a model that is three lines long: a mount, a session or a disk is there as
long as a volume on it is connected, or one whose connect or disconnect died and was not recovered.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quartermaster.connectors import leftovers
from quartermaster.connectors.mounting import target_of
from quartermaster.connectors.records import State
from tests.connectors import tools_iscsi, tools_scsi
from tests.connectors.cases_iscsi import IQN, PORTAL, SECOND_IQN, SECOND_PORTAL
from tests.connectors.cases_iscsi import info as iscsi_info
from tests.connectors.cases_iscsi import prepare as prepare_iscsi
from tests.connectors.harness.inprocess import Crash, Life, connector_without_processes
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

EXPORTS = ("192.0.2.1:/a", "192.0.2.1:/b")
NAMES = ("volume-1", "volume-2", "volume-3")
VOLUMES = [(export, name) for export in EXPORTS for name in NAMES]
FILES = ("one.img", "two.img")
LUNS = (f"{IQN} 1", f"{IQN} 2", f"{SECOND_IQN} 4")
PORTALS = {IQN: PORTAL, SECOND_IQN: SECOND_PORTAL}
TOOLS = {**COMMON, **tools_iscsi.TOOLS}

nfs = st.sampled_from(VOLUMES).map(lambda volume: ("NFS", *volume))
local = st.tuples(st.just("LOCAL"), st.sampled_from(FILES), st.sampled_from(("first", "second")))
iscsi = st.tuples(st.just("ISCSI"), st.sampled_from(LUNS), st.sampled_from(("first", "second")))
step = st.tuples(
    st.sampled_from(("connect", "disconnect", "recover")),
    st.one_of(nfs, local, iscsi),
    st.one_of(st.just(-1), st.integers(0, 16)),  # the step in which the process dies
    st.booleans(),  # after its effect
)


def info_of(world: World, volume: tuple[str, str, str]) -> dict[str, Any]:
    kind, where, name = volume
    if kind == "ISCSI":
        iqn, _, number = where.partition(" ")
        return iscsi_info(targetIqn=iqn, targetPortal=PORTALS[iqn], targetLun=number, volumeId=f"{where} {name}")
    if kind == "NFS":
        return {"driverVolumeType": kind, "data": {"export": where, "name": name, "volumeId": f"{where} {name}"}}
    return {"driverVolumeType": kind, "data": {"devicePath": str(world.path(where)), "volumeId": f"{where} {name}"}}


def world_in(directory: Path) -> World:
    world = World(directory / "world").make()
    world.set_fact("files", {export: list(NAMES) for export in EXPORTS})
    for name in FILES:
        world.path(name).write_bytes(b"\0" * 1024)
    prepare_iscsi(world)
    wwids = {lun: f"6001405{number:025x}" for number, lun in enumerate(LUNS)}
    world.set_fact(
        "luns",
        {iqn: {lun.split()[1]: {"wwid": wwids[lun], "size": "2048"} for lun in LUNS if iqn in lun} for iqn in PORTALS},
    )
    return world


def where_it_is(volume: tuple[str, str, str]) -> tuple[str, str]:
    return volume[0], volume[1]


class Host:
    """What should be here, as far as anybody can know it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connected: set[tuple[str, str, str]] = set()
        self.unfinished: set[tuple[str, str, str]] = set()

    def learn(self) -> None:
        """After a crash the records say how far it came."""
        connector = connector_without_processes(self.world, TOOLS, Life())
        states = {one.volume_id: one.state for one in connector._attaching.records.all()}
        for volume in [*self.connected, *self.unfinished]:
            state = states.get(f"{volume[1]} {volume[2]}")
            self.connected.discard(volume)
            self.unfinished.discard(volume)
            if state is State.CONNECTED:
                self.connected.add(volume)
            elif state is not None:
                self.unfinished.add(volume)

    def check(self) -> None:
        users = self.connected | self.unfinished
        self.check_disks(users)
        here = {mount["source"] for mount in self.world.mounts()} - {"/dev/sda1"}
        assert {where for kind, where, _ in self.connected if kind == "NFS"} <= here
        assert here <= {where for kind, where, _ in users if kind == "NFS"}
        assert len(self.world.mounts()) == len(here) + 1, "an export is mounted twice"
        loops = [file.read_text() for file in self.world.path("sys/class/block").glob("loop*/loop/backing_file")]
        files = {Path(file).name for file in loops}
        assert len(files) == len(loops), "a file has two loop devices"
        assert {where for kind, where, _ in self.connected if kind == "LOCAL"} <= files
        assert files <= {where for kind, where, _ in users if kind == "LOCAL"}

    def check_disks(self, users: set[tuple[str, str, str]]) -> None:
        sessions = {
            int(path.name.removeprefix("session")) + 2: (path / "targetname").read_text()
            for path in self.world.path(tools_iscsi.SESSIONS).iterdir()
        }
        addresses = [path.name.split(":") for path in self.world.path(tools_scsi.SCSI).iterdir()]
        here = {("ISCSI", f"{sessions[int(host)]} {lun}") for host, _, _, lun in addresses}
        wanted = {where_it_is(volume) for volume in self.connected if volume[0] == "ISCSI"}
        assert wanted <= here <= {where_it_is(volume) for volume in users}
        assert {where.split()[0] for _, where in wanted} <= {*sessions.values()}
        assert {*sessions.values()} <= {where.split()[0] for kind, where, _ in users if kind == "ISCSI"}
        if not self.unfinished:
            records = {path.name for path in self.world.path("etc/iscsi/nodes").iterdir()}
            assert records == {*sessions.values()} == {where.split()[0] for _, where in wanted}


async def perform(host: Host, action: str, volume: tuple[str, str, str], life: Life) -> None:
    connector = connector_without_processes(host.world, TOOLS, life)
    info = info_of(host.world, volume)
    try:
        if action == "connect":
            host.unfinished.add(volume)
            found = await connector.connect(info)
            assert await connector.device_path(found.volume_id) == found.path
            host.unfinished.discard(volume)
            host.connected.add(volume)
        elif action == "disconnect":
            await connector.disconnect(info)
            host.connected.discard(volume)
            host.unfinished.discard(volume)
        else:
            assert [one for one in await connector.recover() if one.problem] == []
            host.unfinished.clear()
    except Crash:
        host.unfinished.add(volume)
        host.learn()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(step, min_size=4, max_size=25))
def test_mounts_and_devices_always_match_the_volumes_that_use_them(steps: list[Any]) -> None:
    # There are no processes here that could be left over, and looking through /proc is most of the time.
    with mock.patch.object(leftovers, "at_work_for", return_value=[]):
        try_in_a_new_world(steps)


def try_in_a_new_world(steps: list[Any]) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        host = Host(world_in(directory))
        for action, volume, ends_at, after in steps:
            asyncio.run(perform(host, action, volume, Life(ends_at, after=after)))
            host.check()
        asyncio.run(perform(host, "recover", ("NFS", *VOLUMES[0]), Life()))
        assert not host.unfinished
        host.check()
        for volume in sorted(host.connected):
            asyncio.run(perform(host, "disconnect", volume, Life()))
        host.check()
        assert list(host.world.path("state/attachments").iterdir()) == []
        assert list(host.world.path("state/mounts").iterdir()) == []
    finally:
        shutil.rmtree(directory)


def test_an_export_that_was_mounted_before_us_stays_mounted(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    target = target_of(world.path("state/mounts"), "nfs", EXPORTS[0], ("as ",))
    Path(target).mkdir()
    world.add_mount(EXPORTS[0], target, "nfs4")
    host = Host(world)
    for name in NAMES[:2]:
        asyncio.run(perform(host, "connect", ("NFS", EXPORTS[0], name), Life()))
    for name in NAMES[:2]:
        asyncio.run(perform(host, "disconnect", ("NFS", EXPORTS[0], name), Life()))
    assert [mount["target"] for mount in world.mounts()] == ["/", target]
