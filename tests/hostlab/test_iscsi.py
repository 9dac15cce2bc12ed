"""iSCSI between the kernel's initiator and the kernel's target."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from quartermaster.connectors import (
    AuthenticationError,
    Connector,
    IdentityMismatchError,
    NotAppearingError,
    UnreachableError,
    VolumeBusyError,
    open_connector,
)
from tests.hostlab.keeping import read_again, write_and_leave
from tests.hostlab.lio import RECORDS, SIZE, Disk, Target, node_records, sessions, start_iscsi, write
from tests.hostlab.programs import read, run, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _iscsi() -> None:
    start_iscsi()


@pytest.fixture
def disks() -> Iterator[list[Disk]]:
    made = [Disk("first"), Disk("second")]
    yield made
    for disk in made:
        disk.remove()


@pytest.fixture
def target(disks: list[Disk]) -> Iterator[Target]:
    made = Target("disks")
    for lun, disk in enumerate(disks):
        made.serve(lun, disk)
    yield made
    made.remove()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=60) as found:
        yield found
        assert (sessions(), node_records()) == ({}, [])
        assert [path for path in (tmp_path / "state/attachments").glob("*") if path.is_file()] == []


@pytest.fixture
def _nothing_is_written_back() -> Iterator[None]:
    """The kernel does so by itself 5 s after the first write to a new device, which a busy machine may take. With 0
    here it would do so at once."""
    every = Path("/proc/sys/vm/dirty_writeback_centisecs")
    before = every.read_text()
    every.write_text("360000")
    yield
    every.write_text(before)


async def test_what_was_written_is_there_after_another_attach(connector: Connector, target: Target) -> None:
    info = target.info(0, "volume-1")
    attachment = await connector.connect(info)
    assert sessions() == {target.iqn: [0]}
    assert os.path.realpath(attachment.path) == attachment.device
    assert await connector.device_path("volume-1") == attachment.path
    assert await write_and_leave(connector, info) == attachment
    assert sessions() == {}
    await read_again(connector, info)


async def test_the_session_stays_until_its_last_volume_goes(connector: Connector, target: Target) -> None:
    first, second = target.info(0, "volume-1"), target.info(1, "volume-2")
    one, two = await connector.connect(first), await connector.connect(second)
    assert one.device != two.device
    assert sessions() == {target.iqn: [0, 1]}
    await connector.disconnect(first)
    assert sessions() == {target.iqn: [1]}
    assert await connector.device_path("volume-2") == two.path
    await connector.disconnect(second)
    assert sessions() == {}


async def test_a_password_opens_the_target_and_a_wrong_one_does_not(connector: Connector, disks: list[Disk]) -> None:
    target = Target("guarded", chap=True)
    target.serve(0, disks[0])
    info = target.info(0, "volume-1")
    with pytest.raises(AuthenticationError):
        await connector.connect(target.info(0, "volume-2", authPassword="another-secret"))
    assert (sessions(), node_records()) == ({}, [])
    await connector.connect(info)
    assert sessions() == {target.iqn: [0]}
    await connector.disconnect(info)
    assert (sessions(), node_records()) == ({}, [])
    target.remove()


async def test_a_lun_that_is_given_to_another_volume_is_noticed(
    connector: Connector, target: Target, disks: list[Disk]
) -> None:
    """The kernel keeps the disk that it has found at the address first, and reads and writes the other one's data."""
    old = await connector.connect(target.info(0, "volume-1"))
    assert old.identity == disks[0].wwid
    target.withdraw(0)
    target.withdraw(1)
    target.serve(0, disks[1])
    with pytest.raises(IdentityMismatchError) as refusal:
        await connector.connect(target.info(0, "volume-2"))
    assert disks[0].wwid in str(refusal.value)
    with pytest.raises(IdentityMismatchError):
        await connector.device_path("volume-1")
    with pytest.raises(IdentityMismatchError):
        await connector.disconnect(target.info(0, "volume-1"))
    await connector.disconnect(target.info(0, "volume-1"), force=True)
    new = await connector.connect(target.info(0, "volume-2"))
    assert new.identity == disks[1].wwid
    await connector.disconnect(target.info(0, "volume-2"))


@pytest.mark.deep
@pytest.mark.usefixtures("_nothing_is_written_back")
async def test_force_writes_nothing_into_the_volume_that_has_taken_the_lun(
    connector: Connector, target: Target, disks: list[Disk]
) -> None:
    old = await connector.connect(target.info(0, "volume-1"))
    with open(old.device, "r+b", buffering=0) as device:
        target.withdraw(0)
        target.withdraw(1)
        target.serve(0, disks[1])
        # It stays in the memory of this host, for the device is open.
        device.write(b"of the old volume" * 4096)
        await connector.disconnect(target.info(0, "volume-1"), force=True)
    assert sessions() == {}
    assert not disks[1].file.read_bytes().strip(b"\0")


@pytest.mark.deep
async def test_what_the_administrator_has_found_stays_when_a_connect_fails(
    connector: Connector, target: Target, disks: list[Disk]
) -> None:
    run("iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", target.portals[0])
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--login")
    wait_for(lambda: sessions() == {target.iqn: [0, 1]})
    with pytest.raises(IdentityMismatchError):
        await connector.connect(target.info(0, "volume-1", wwid=disks[1].wwid))
    with pytest.raises(NotAppearingError):
        await connector.connect(target.info(7, "volume-7"), timeout_s=15)
    assert sessions() == {target.iqn: [0, 1]}
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--logout")
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--op", "delete")
    run("iscsiadm", "-m", "discoverydb", "-t", "sendtargets", "-p", target.portals[0], "--op", "delete")


@pytest.mark.deep
async def test_a_lun_that_never_appears_leaves_the_host_as_it_was(connector: Connector, target: Target) -> None:
    with pytest.raises(NotAppearingError, match="LUN 7"):
        await connector.connect(target.info(7, "volume-7"), timeout_s=15)
    assert (sessions(), node_records()) == ({}, [])


@pytest.mark.deep
async def test_a_portal_that_does_not_answer_is_named(connector: Connector, target: Target) -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:3299"):
        await connector.connect(target.info(0, "volume-1", targetPortal="127.0.0.1:3299"))
    assert (sessions(), node_records()) == ({}, [])


@pytest.mark.deep
async def test_a_mounted_volume_is_not_disconnected(connector: Connector, target: Target) -> None:
    info = target.info(0, "volume-1")
    attachment = await connector.connect(info)
    run("mkfs.ext4", "-q", attachment.path)
    run("mount", attachment.path, "/media")
    with pytest.raises(VolumeBusyError):
        await connector.disconnect(info)
    assert sessions() == {target.iqn: [0]}
    run("umount", "/media")
    await connector.disconnect(info)


@pytest.mark.deep
async def test_what_the_administrator_discovered_and_logged_in_to_stays(connector: Connector, target: Target) -> None:
    run("iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", target.portals[0])
    before = node_records()
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--login")
    wait_for(lambda: sessions() == {target.iqn: [0, 1]})
    info = target.info(0, "volume-1", targetDiscovered=True)
    await connector.connect(info)
    await connector.disconnect(info)
    assert (sessions(), node_records()) == ({target.iqn: [1]}, before)
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--logout")
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--op", "delete")
    run("iscsiadm", "-m", "discoverydb", "-t", "sendtargets", "-p", target.portals[0], "--op", "delete")


@pytest.mark.deep
async def test_a_record_that_the_administrator_discovered_comes_back(connector: Connector, target: Target) -> None:
    run("iscsiadm", "-m", "discovery", "-t", "sendtargets", "-p", target.portals[0])
    (record,) = node_records()
    before = (RECORDS / record).read_text()
    info = target.info(0, "volume-1", targetDiscovered=True)
    await connector.connect(info)
    await connector.disconnect(info)
    assert node_records() == [record]
    assert (RECORDS / record).read_text() == before
    run("iscsiadm", "-m", "node", "-T", target.iqn, "--op", "delete")
    run("iscsiadm", "-m", "discoverydb", "-t", "sendtargets", "-p", target.portals[0], "--op", "delete")


@pytest.mark.deep
async def test_a_volume_that_has_grown_is_seen_so(connector: Connector, target: Target) -> None:
    disk = Disk("growing", size=SIZE)
    target.serve(3, disk)
    info = target.info(3, "volume-3")
    await connector.connect(info)
    disk.grow(2 * SIZE)
    assert await connector.extend(info) == 2 * SIZE
    await connector.disconnect(info)
    target.withdraw(3)
    disk.remove()


@pytest.mark.deep
async def test_while_the_target_is_away_a_look_says_so_at_once_and_the_volume_comes_back_by_itself(
    connector: Connector, target: Target
) -> None:
    info = target.info(0, "volume-1")
    attachment = await connector.connect(info)
    state = Path("/sys/class/block", Path(attachment.device).name, "device/state")
    write(target.directory / "enable", "0")
    wait_for(lambda: read(state) != "running")
    with pytest.raises(UnreachableError, match=f"it is here as {attachment.path}, but the kernel says that"):
        await connector.device_path("volume-1", timeout_s=5)
    (listed,) = (await connector.list(foreign=False)).attachments
    assert (listed.present, bool(listed.problem)) == (True, True)
    write(target.directory / "enable", "1")
    wait_for(lambda: read(state) == "running")
    assert await connector.device_path("volume-1") == attachment.path
    await connector.disconnect(info)
