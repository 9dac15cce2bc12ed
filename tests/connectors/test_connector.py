"""Bad input and danger: a typed error that names what is wrong, and the host as it was before."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    AttachmentConflictError,
    ConnectionDataError,
    IdentityMismatchError,
    NotAttachedError,
    OsType,
    RecordDamagedError,
    UnsupportedDriverError,
    VolumeBusyError,
)
from quartermaster.connectors.connector import Connector, open_connector
from quartermaster.connectors.leftovers import VARIABLE, at_work_for, mark, wait_for_leftovers
from quartermaster.host import procfs
from quartermaster.host.commands import Command, HostCommands
from quartermaster.support.errors import CommandError, DeadlineError, HostError, MountBusyError, QuartermasterError
from quartermaster.support.tasks import TaskGroup
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**COMMON)
    made.set_fact("files", {"192.0.2.1:/vol": ["volume-1", "volume-2"]})
    made.path("disk.img").write_bytes(b"\0" * 4096)
    return made


def nfs(name: str = "volume-1", **others: Any) -> dict[str, Any]:
    return {"driverVolumeType": "NFS", "data": {"export": "192.0.2.1:/vol", "name": name, "volumeId": name, **others}}


def local(world: World, path: str = "disk.img", volume: str = "local-1") -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path(path)), "volumeId": volume}}


async def test_an_unknown_driver_type_is_named_with_those_that_there_are(world: World) -> None:
    with pytest.raises(UnsupportedDriverError, match=r'"NOPE": there is no driver of that type; there are .*NFS'):
        await connector_in(world).connect({"driverVolumeType": "nope", "data": {}})


async def test_windows_is_not_supported_and_says_so(world: World) -> None:
    made = connector_in(world)
    windows = Connector(made._machine, made._settings, os_type=OsType.WINDOWS)
    with pytest.raises(UnsupportedDriverError, match="not supported on WIN"):
        await windows.connect(nfs())


async def test_a_client_that_a_driver_does_not_have_is_named_with_those_it_has(world: World) -> None:
    with pytest.raises(UnsupportedDriverError, match="it has no userspace client; it has kernel"):
        await connector_in(world, clients={"nfs": "userspace"}).connect(nfs())


async def test_wrong_data_change_nothing(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(ConnectionDataError, match=r"data\.export: is missing"):
        await connector_in(world).connect({"driverVolumeType": "NFS", "data": {}})
    assert world.snapshot() == before


@pytest.mark.parametrize("given", [None, [], "NFS", 7])
async def test_what_is_no_connection_information_at_all_is_said_to_be_so(world: World, given: Any) -> None:
    with pytest.raises(ConnectionDataError, match="not an object"):
        await connector_in(world).connect(given)


@pytest.mark.parametrize(
    ("type", "data", "words"),
    [
        ("NFS", {"export": "192.0.2.1:/vol", "name": "/etc/shadow"}, "leads out of the file system"),
        ("NFS", {"export": "192.0.2.1:/vol", "name": "../../etc/shadow"}, "leads out of the file system"),
        ("NFS", {"export": "192.0.2.1:/vol", "mount_point_base": "mounts"}, "does not begin with /"),
        ("CEPHFS", {"monitors": "192.0.2.1", "name": "a/../../b"}, "leads out of the file system"),
        ("VZSTORAGE", {"export": "stor1", "name": "/etc/shadow"}, "leads out of the file system"),
        ("SMBFS", {"export": "//192.0.2.1/a", "username": "a", "password": "b\ndomain=c"}, "control character"),
        ("LOCAL", {"devicePath": "disk.img"}, "does not begin with /"),
        ("GPFS", {"devicePath": "disk.img"}, "does not begin with /"),
    ],
)
async def test_data_that_lead_elsewhere_than_to_a_volume_are_refused(
    world: World, type: str, data: dict[str, Any], words: str
) -> None:
    before = world.snapshot()
    with pytest.raises(ConnectionDataError, match=words):
        await connector_in(world).connect({"driverVolumeType": type, "data": data})
    assert world.snapshot() == before


@pytest.mark.parametrize("kind", [str, Path])
async def test_the_directory_of_the_records_may_be_text(world: World, kind: Any) -> None:
    connector = open_connector(directory=kind(world.path("state")), mount_directory=kind(world.path("mounts")))
    assert (await connector.list(foreign=False)).attachments == ()


@pytest.mark.slow
async def test_a_program_that_does_not_end_with_its_time_keeps_the_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.install(mount="tests.connectors.harness.tools:hanging")
    connector = connector_in(world)
    monkeypatch.setattr("quartermaster.connectors.attaching.at_work_for", lambda *_: [1])
    with pytest.raises(DeadlineError) as caught:
        await connector.connect(nfs(), timeout_s=1)
    assert "process 1 is still at work" in caught.value.__notes__[0]
    monkeypatch.undo()
    world.install(**COMMON)
    assert [(one.volume_id, one.was, one.problem) for one in await connector.recover()] == [
        ("volume-1", "connecting", "")
    ]


async def test_what_a_connect_has_not_claimed_is_not_taken_back(world: World) -> None:
    """It had been here before; the connect had failed, given its claim back, and died before it was forgotten."""
    connector = connector_in(world)
    await connector.connect(local(world))
    file = world.path("state/attachments/local-1.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "state": "connecting", "claims": {}}))
    assert [one.problem for one in await connector.recover()] == [""]
    assert not file.exists()
    assert world.path("sys/class/block/loop0").exists()


async def test_a_server_that_refuses_is_quoted(world: World) -> None:
    world.set_fact("refused", ["192.0.2.1:/vol"])
    before = world.snapshot()
    with pytest.raises(CommandError, match="access denied by server"):
        await connector_in(world).connect(nfs())
    assert world.snapshot() == before


async def test_a_volume_that_is_not_in_the_export_is_named_and_nothing_stays_mounted(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(HostError, match="cannot find the volume volume-9: there is no such file"):
        await connector_in(world).connect(nfs("volume-9"))
    assert world.snapshot() == before


async def test_the_same_volume_at_another_place_is_a_conflict(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(nfs())
    with pytest.raises(AttachmentConflictError, match="attached here as NFS"):
        await connector.connect(nfs(options="ro"))


async def test_a_mounted_device_is_not_taken_away(world: World) -> None:
    connector = connector_in(world)
    attachment = await connector.connect(local(world))
    number = world.path("sys/class/block/loop0/dev").read_text()
    line = f"77 1 {number} / /mnt/data rw - ext4 {attachment.device} rw\n"
    mountinfo = world.path("proc/self/mountinfo")
    mountinfo.write_text(mountinfo.read_text() + line)
    before = world.snapshot()
    with pytest.raises(VolumeBusyError, match=r"loop0 is in use: mounted on /mnt/data"):
        await connector.disconnect(local(world))
    assert world.snapshot() == before
    assert await connector.device_path("local-1") == attachment.path


async def test_a_device_under_another_device_is_not_taken_away(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.path("sys/class/block/loop0/holders/dm-3").mkdir(parents=True)
    with pytest.raises(VolumeBusyError, match="dm-3 is built on it"):
        await connector.disconnect(local(world))


@pytest.mark.slow
async def test_a_busy_mount_stays_attached_and_recover_leaves_it_alone(world: World) -> None:
    connector = connector_in(world)
    attachment = await connector.connect(nfs())
    world.set_fact("busy", [str(Path(attachment.path).parent)])
    before = world.snapshot()
    with pytest.raises(MountBusyError):
        await connector.disconnect(nfs())
    assert await connector.recover() == ()
    assert world.snapshot() == before
    await connector.disconnect(nfs(), force=True)
    assert len(world.mounts()) == 1


async def test_a_device_that_is_another_volume_by_now_is_not_given_out(world: World) -> None:
    world.add_device("vdb", serial="first")
    connector = connector_in(world)
    info = local(world, "dev/vdb")
    await connector.connect(info)
    world.path("sys/class/block/vdb/serial").write_text("second")
    with pytest.raises(IdentityMismatchError, match="it is serial:second, and the volume is serial:first") as caught:
        await connector.device_path("local-1")
    assert (caught.value.expected, caught.value.found) == ("serial:first", "serial:second")
    with pytest.raises(IdentityMismatchError):
        await connector.connect(info)


async def test_a_device_that_is_another_volume_by_now_is_given_up_by_force_and_stays(world: World) -> None:
    world.add_device("vdb", serial="first")
    connector = connector_in(world)
    info = local(world, "dev/vdb")
    await connector.connect(info)
    world.path("sys/class/block/vdb/serial").write_text("second")
    before = world.snapshot()
    with pytest.raises(IdentityMismatchError) as refused:
        await connector.disconnect(info)
    assert "force=True" in refused.value.hint
    assert "qm connector disconnect --force" in refused.value.hint
    assert world.snapshot() == before
    await connector.disconnect(info, force=True)
    assert (await connector.list(foreign=False)).attachments == ()
    assert world.path("dev/vdb").exists()


async def test_a_link_that_leads_elsewhere_is_noticed(world: World) -> None:
    connector = connector_in(world)
    attachment = await connector.connect(local(world))
    os.unlink(attachment.path)
    os.symlink("../../sdx", attachment.path)
    with pytest.raises(NotAttachedError, match="any more"):
        await connector.device_path("local-1")


async def test_a_volume_that_nobody_connected_is_not_found(world: World) -> None:
    with pytest.raises(NotAttachedError, match="cannot find the volume v: it is not attached to this host"):
        await connector_in(world).device_path("v")


async def test_a_record_cut_short_is_named_and_mended_by_a_disconnect(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(nfs())
    file = world.path("state/attachments/volume-1.json")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(RecordDamagedError, match=r"volume-1\.json"):
        await connector.device_path("volume-1")
    assert "volume-1.json" in (await connector.recover())[0].problem
    assert "volume-1.json" in (await connector.list()).attachments[0].problem
    await connector.disconnect(nfs())
    assert not file.exists()
    assert len(world.mounts()) == 1


@pytest.mark.slow
async def test_nothing_shared_is_taken_down_while_a_record_cannot_be_read(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(nfs("volume-1"))
    await connector.connect(nfs("volume-2"))
    world.path("state/attachments/volume-1.json").write_bytes(b"{")
    await connector.disconnect(nfs("volume-2"))
    assert len(world.mounts()) == 2


@pytest.mark.slow
async def test_a_corrupted_mount_is_made_anew(world: World) -> None:
    connector = connector_in(world)
    attachment = await connector.connect(nfs("volume-1"))
    target = str(Path(attachment.path).parent)
    world.set_fact("health", {target: "Transport endpoint is not connected"})
    world.forget()
    await connector.connect(nfs("volume-2"))
    assert [argv[0] for argv in world.commands()] == ["stat", "umount", "mount", "stat"]
    assert len(world.mounts()) == 2


@pytest.mark.slow
async def test_after_a_boot_a_volume_is_attached_anew(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(nfs())
    file = world.path("state/attachments/volume-1.json")
    file.write_text(file.read_text().replace(connector._machine.boot, "an-earlier-boot"))
    world.drop_mount(world.mounts()[-1]["target"])
    world.forget()
    await connector.connect(nfs())
    assert "mount" in [argv[0] for argv in world.commands()]
    await connector.disconnect(nfs())
    assert len(world.mounts()) == 1


async def test_what_others_have_mounted_is_listed_as_not_ours(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(nfs())
    world.add_mount("192.0.2.5:/home", "/home", "nfs4")
    found = await connector.list()
    assert [one.volume_id for one in found.attachments if one.present] == ["volume-1"]
    assert [(one.kind, one.name, one.path) for one in found.foreign] == [("mount", "192.0.2.5:/home", "/home")]


@pytest.mark.slow
async def test_a_volume_that_hangs_does_not_hold_up_another(world: World) -> None:
    world.install(mount="tests.connectors.harness.tools:hanging")
    connector = connector_in(world, timeout_s=5)
    async with TaskGroup() as group:
        slow = group.start(failure_of(connector.connect(nfs(export="192.0.2.9:/dead"), timeout_s=2)))
        quick = await connector.connect(local(world))
        assert not slow.done()
        assert quick.device.endswith("loop0")
    assert isinstance(slow.result(), DeadlineError)


async def failure_of(work: Any) -> BaseException | None:
    try:
        await work
    except QuartermasterError as error:
        return error
    return None


@pytest.mark.slow
async def test_a_program_that_outlives_its_starter_is_waited_for_and_its_daemon_is_not(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    argv = ("sh", "-c", f"sleep 30 </dev/null >/dev/null 2>&1 & read line <{gate}")
    marked = mark(tmp_path, ["volume 1", "session 7"], argv)
    async with TaskGroup() as group:
        group.start(HostCommands().run(Command(argv, verb="try", environment={VARIABLE: marked})))
        while not sleepers(marked):  # what is forked looks like its parent until it is executed
            await wait_a_moment()
        assert len(at_work_for(tmp_path, "session 7")) == 1
        assert len(at_work_for(tmp_path, "volume 1")) == 1
        assert at_work_for(tmp_path / "another", "volume 1") == []
        waiting = group.start(wait_for_leftovers(tmp_path, "volume 1", timeout_s=60, what="it"))
        await wait_a_moment()
        assert not waiting.done()
        gate.write_text("go on\n")
        await waiting
        assert at_work_for(tmp_path, "session 7") == []
        assert at_work_for(tmp_path, "another") == []
    for pid in sleepers(marked):
        os.kill(pid, signal.SIGKILL)


async def wait_a_moment() -> None:
    import asyncio

    await asyncio.sleep(0.01)


def sleepers(marked: str) -> list[int]:
    return [
        process.pid
        for process in procfs.processes()
        if procfs.environment_value(process.pid, VARIABLE) == marked
        if procfs.arguments(process.pid) == ("sleep", "30")
    ]
