"""A SCSI disk that somebody else uses as well: another volume id at its LUN, or whoever runs the host."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    AttachmentConflictError,
    IdentityMismatchError,
    VolumeBusyError,
)
from quartermaster.connectors.connector import Connector
from quartermaster.support.errors import DeadlineError, QuartermasterError
from tests.connectors import cases_fibre_channel, cases_iscsi, tools_iscsi, tools_multipath, tools_scsi
from tests.connectors.cases_iscsi import IQN, SECOND_IQN, SEVERAL, info
from tests.connectors.harness.running import connector_in, in_process, killed_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import FAIL_BEFORE, KILL, World
from tests.connectors.tools_scsi import OTHER_WWID, WWID, lun

pytestmark = pytest.mark.slow

SECOND = info(volumeId="volume-2")
MOST_STEPS = 20


def iscsi_host(directory: Path) -> World:
    made = World(directory / "world").make()
    made.install(**{**COMMON, **tools_iscsi.TOOLS})
    cases_iscsi.prepare(made)
    return made


def iscsi_disk(directory: Path) -> World:
    """Whoever runs the host has logged in and found the disk."""
    made = iscsi_host(directory)
    tools_iscsi.make_session(made, 1, IQN, "192.0.2.1", "3260")
    assert tools_scsi.add_disk(made, "3:0:0:1") == "sdb"
    return made


def fibre_channel_disk(directory: Path) -> World:
    made = World(directory / "world").make()
    made.install(**{**COMMON, **tools_scsi.TOOLS})
    cases_fibre_channel.prepare(made)
    assert tools_scsi.add_disk(made, "3:0:2:1") == "sdb"
    return made


def s390_unit(directory: Path) -> World:
    made = World(directory / "world").make()
    made.install(**{**COMMON, **tools_scsi.TOOLS})
    cases_fibre_channel.prepare_s390(made)
    adapter = made.path(cases_fibre_channel.ADAPTER)
    tools_scsi.port_rescan(made, adapter / "port_rescan", "1")
    tools_scsi.unit_add(made, adapter / f"0x{cases_fibre_channel.PORT}/unit_add", "0x0001000000000000")
    assert made.path("dev/sdb").exists()
    return made


fibre_channel = cases_fibre_channel.info()(World(Path("/")))
on_every_host = pytest.mark.parametrize(
    ("host", "given", "machine"),
    [
        (iscsi_disk, info(), "x86_64"),
        (fibre_channel_disk, fibre_channel, "x86_64"),
        (s390_unit, fibre_channel, "s390x"),
    ],
    ids=["iscsi", "fibre channel", "s390"],
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return iscsi_host(tmp_path)


def disks(world: World) -> list[str]:
    return sorted(path.name for path in world.path("sys/class/block").iterdir())


def mount_it(world: World, device: str) -> None:
    number = world.path(f"sys/class/block/{device}/dev").read_text()
    file = world.path("proc/self/mountinfo")
    file.write_text(f"{file.read_text()}77 1 {number} / /mnt/data rw - ext4 /dev/{device} rw\n")


@on_every_host
async def test_a_connect_that_fails_anywhere_leaves_a_disk_that_was_here(
    host: Callable[[Path], World], given: Any, machine: str, tmp_path: Path
) -> None:
    for number in range(MOST_STEPS):
        (tmp_path / str(number)).mkdir()
        world = host(tmp_path / str(number))
        mount_it(world, "sdb")
        before = world.snapshot()
        world.plan(number, FAIL_BEFORE)
        try:
            await connector_in(world, machine=machine).connect(given)
        except QuartermasterError:
            assert world.snapshot() == before, f"step {number}"
        else:
            assert number >= 3
            return
    raise AssertionError("it never came to its end")


@on_every_host
async def test_what_a_killed_connect_has_met_is_not_taken_away_by_recover(
    host: Callable[[Path], World], given: Any, machine: str, tmp_path: Path
) -> None:
    for number in range(MOST_STEPS):
        (tmp_path / str(number)).mkdir()
        world = host(tmp_path / str(number))
        before = world.snapshot()
        world.plan(number, KILL)
        connector = connector_in(world, machine=machine)
        killed = killed_in(world, partial(connector.connect, given))
        world.unplan()
        assert [one for one in await connector.recover() if one.problem] == []
        if not killed or (await connector.list(foreign=False)).attachments:
            assert number >= 3
            return
        assert world.snapshot() == before, f"step {number}"
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("first", ["volume-1", "volume-2"])
async def test_the_disk_of_two_volume_ids_goes_with_the_last(world: World, first: str) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    given = {"volume-1": info(), "volume-2": SECOND}
    for each in given.values():
        assert (await connector.connect(each)).device.endswith("/sdb")
    await connector.disconnect(given.pop(first))
    ((left, other),) = given.items()
    assert await connector.device_path(left)
    assert disks(world) == ["sdb"]
    await connector.disconnect(other)
    assert world.snapshot() == before


def test_two_volume_ids_of_one_lun_come_and_go_at_once(world: World) -> None:
    before = world.snapshot()
    both = (info(), SECOND)
    coming = [in_process(world, partial(connector_in(world).connect, given)) for given in both * 2]
    answers = [wait() for wait in coming]
    assert [(code, answer["device"].rpartition("/")[2]) for code, answer in answers] == [(0, "sdb")] * 4
    assert len([argv for argv in world.commands() if "--login" in argv]) == 1
    going = [in_process(world, partial(connector_in(world).disconnect, given)) for given in both]
    assert [wait()[0] for wait in going] == [0, 0]
    assert world.snapshot() == before


async def test_a_second_volume_id_that_fails_leaves_the_disk_of_the_first(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    before = world.snapshot()
    with pytest.raises(IdentityMismatchError):
        await connector.connect(info(volumeId="volume-2", wwid=f"naa.{OTHER_WWID}"))
    world.set_fact("unflushable", ["sdb"])
    with pytest.raises(QuartermasterError):
        await connector.connect(info(volumeId="volume-2", accessMode="ro"))
    with world.facts() as known:
        del known["unflushable"]
    assert world.snapshot() == before


async def test_a_disk_that_another_volume_writes_to_is_not_made_read_only(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    with pytest.raises(AttachmentConflictError, match=r"sdb read-only .*: another volume is attached to it"):
        await connector.connect(info(volumeId="volume-2", accessMode="ro"))
    assert not world.path("sys/class/block/sdb/ro").exists()
    assert await connector.device_path("volume-1")


async def test_a_disk_that_is_mounted_is_not_made_read_only(tmp_path: Path) -> None:
    world = iscsi_disk(tmp_path)
    mount_it(world, "sdb")
    before = world.snapshot()
    with pytest.raises(AttachmentConflictError, match="mounted on /mnt/data"):
        await connector_in(world).connect(info(accessMode="ro"))
    assert world.snapshot() == before


async def with_a_map(world: World) -> None:
    """Whoever runs the host has a multipath device over the first disk, and a file system on it."""
    tools_multipath.multipath(world, ["-a", "/dev/sdb"], "")
    tools_multipath.multipathd(world, ["add", "path", "sdb"], "")
    mount_it(world, "dm-0")


async def test_a_map_that_was_here_stays_when_another_path_to_it_fails(tmp_path: Path) -> None:
    world = iscsi_disk(tmp_path)
    await with_a_map(world)
    before = world.snapshot()
    world.set_fact("unknown_to_udev", ["sdc"] * 99)
    with pytest.raises(DeadlineError):
        await connector_in(world, multipath=True).connect(info(**SEVERAL), timeout_s=6)
    with world.facts() as known:
        del known["unknown_to_udev"]
    assert world.snapshot() == before
    assert not [argv for argv in world.commands() if argv[0] == "dmsetup" or argv[-1].endswith("dm-0")]


async def connected_without_its_map(world: World) -> Connector:
    """The map has gone, and somebody has mounted a path."""
    connector = connector_in(world, multipath=True)
    await connector.connect(info(**SEVERAL))
    tools_multipath.dmsetup(world, ["remove", f"3{WWID}"], "")
    mount_it(world, "sdb")
    return connector


async def test_a_volume_that_cannot_be_made_anew_stays_as_it_is(world: World) -> None:
    connector = await connected_without_its_map(world)
    world.set_fact("unknown_to_udev", ["sdb"] * 99)
    with pytest.raises(DeadlineError):
        await connector.connect(info(**SEVERAL), timeout_s=6)
    assert {"sdb", "sdc"} <= {*disks(world)}
    assert await listed(connector) == ["connected"]
    assert await connector.recover() == ()


async def test_a_volume_whose_making_anew_was_killed_stays_as_it_is(world: World) -> None:
    connector = await connected_without_its_map(world)
    # After the two looks at what the disks are, and the record.
    world.plan(4, KILL)
    assert killed_in(world, lambda: connector_in(world, multipath=True).connect(info(**SEVERAL)))
    world.unplan()
    assert [(one.was, one.problem) for one in await connector.recover()] == [("reconnecting", "")]
    assert {"sdb", "sdc"} <= {*disks(world)}
    assert await listed(connector) == ["connected"]
    assert (await connector.connect(info(**SEVERAL))).device.endswith("/dm-0")


async def test_a_path_that_is_mounted_is_not_taken_away_with_its_map_gone(world: World) -> None:
    connector = await connected_without_its_map(world)
    before = world.snapshot()
    with pytest.raises(VolumeBusyError, match="mounted on /mnt/data"):
        await connector.disconnect(info(**SEVERAL))
    assert world.snapshot() == before


@pytest.mark.parametrize("reused", [[IQN], [IQN, SECOND_IQN]], ids=["one path", "all paths"])
async def test_force_writes_nothing_into_a_volume_that_has_taken_the_place_of_a_path(
    world: World, reused: list[str]
) -> None:
    connector = connector_in(world, multipath=True)
    before = world.snapshot()
    await connector.connect(info(**SEVERAL))
    numbers = {IQN: "1", SECOND_IQN: "4"}
    world.set_fact("luns", {iqn: {lu: lun(OTHER_WWID if iqn in reused else WWID)} for iqn, lu in numbers.items()})
    with pytest.raises(IdentityMismatchError, match=OTHER_WWID):
        await connector.disconnect(info(**SEVERAL))
    assert await listed(connector) == ["connected"]
    await connector.disconnect(info(**SEVERAL), force=True)
    assert world.fact("spoiled") is None
    assert {**world.snapshot(), "facts.json": ""} == {**before, "facts.json": ""}


async def test_a_second_path_that_is_another_volume_by_now_changes_nothing(world: World) -> None:
    connector = connector_in(world, multipath=True)
    await connector.connect(info(**SEVERAL))
    world.set_fact("luns", {IQN: {"1": lun()}, SECOND_IQN: {"4": lun(OTHER_WWID)}})
    before = world.snapshot()
    with pytest.raises(IdentityMismatchError, match="sdc"):
        await connector.disconnect(info(**SEVERAL))
    assert world.snapshot() == before


async def listed(connector: Connector) -> list[str]:
    return [one.state for one in (await connector.list(foreign=False)).attachments]
