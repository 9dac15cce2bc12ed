"""Events: real messages of the kernel, real inotify, and the poll behind them."""

import asyncio
import os
import struct
from pathlib import Path

import pytest

from quartermaster.host.events import Change, HostEvents, PendingChanges, parse_uevent, wait_until
from quartermaster.host.fake import FakeEvents
from quartermaster.host.inotify import borrow, give_back
from tests.host.namespaces import loop_device

KERNEL = b"add@/devices/virtual/block/loop0\0ACTION=add\0SUBSYSTEM=block\0DEVNAME=loop0\0"


def test_messages_of_the_kernel_and_of_udev_are_read() -> None:
    assert parse_uevent(KERNEL) == {"ACTION": "add", "SUBSYSTEM": "block", "DEVNAME": "loop0"}
    body = b"ACTION=add\0DEVNAME=/dev/sda\0"
    header = struct.pack("=8s4sIII16x", b"libudev", b"\xfe\xed\xca\xfe", 40, 40, len(body))
    assert parse_uevent(header + body) == {"ACTION": "add", "DEVNAME": "/dev/sda"}
    assert parse_uevent(b"libudev\0") == {}


@pytest.mark.netns
async def test_a_new_disk_is_noticed_by_itself(tmp_path: Path) -> None:
    async with HostEvents().watch() as changes:
        with loop_device(tmp_path, size=1 << 20) as device:

            async def look() -> bool | None:
                change = await changes.wait(1)
                return True if change and device.removeprefix("/dev/") in change.names else None

            assert await wait_until(look, changes, timeout_s=3)


async def test_a_change_in_a_named_directory_is_noticed(tmp_path: Path) -> None:
    async with HostEvents(subsystems=()).watch(directories=[tmp_path, tmp_path / "missing"]) as changes:
        (tmp_path / "vdb").symlink_to("/dev/loop7")
        assert await changes.wait(2) == Change(("vdb",))
        (tmp_path / "vdb").unlink()
        assert await changes.wait(2) == Change(("vdb",))
        assert await changes.wait(0.01) is None


async def test_all_who_watch_one_directory_are_told_until_they_leave(tmp_path: Path) -> None:
    events = HostEvents(subsystems=())
    async with events.watch(directories=[tmp_path]) as first:
        async with events.watch(directories=[tmp_path]) as second:
            (tmp_path / "vdb").mkdir()
            assert await first.wait(2) == await second.wait(2) == Change(("vdb",))
        (tmp_path / "vdc").mkdir()
        assert await first.wait(2) == Change(("vdc",))
        assert await second.wait(0.01) is None


async def test_only_what_happens_while_it_is_watched_is_told(tmp_path: Path) -> None:
    events = HostEvents(subsystems=())
    async with events.watch(directories=[tmp_path]):
        (tmp_path / "vdb").mkdir()
    async with events.watch(directories=[tmp_path / "vdb"]) as changes:
        (tmp_path / "vdc").mkdir()
        assert await changes.wait(0.05) is None
        (tmp_path / "vdb/vdb1").mkdir()
        assert await changes.wait(2) == Change(("vdb1",))


def test_a_process_that_was_forked_has_an_inotify_of_its_own() -> None:
    kept = borrow()
    give_back(kept)
    assert borrow() is kept
    give_back(kept)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if borrow().fd != kept.fd else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def test_a_write_to_what_is_no_disk_is_none() -> None:
    async with HostEvents(subsystems=()).watch(directories=[Path("/dev")]) as changes:
        Path("/dev/null").write_bytes(b"nothing")
        assert await changes.wait(0.1) is None


async def test_without_any_message_the_poll_asks_to_look_at_everything() -> None:
    async with HostEvents(poll_s=0.02, subsystems=()).watch() as changes:
        async for change in changes:
            assert change == Change()
            break


async def test_many_changes_that_nobody_took_are_one() -> None:
    pending = PendingChanges(60)
    pending.add("vdb")
    pending.add("vda", "vdb")
    pending.add()
    assert await pending.wait(0) == Change(("vdb", "vda"))
    pending.add(*(f"sd{number}" for number in range(1000)))
    assert await pending.wait(0) == Change(), "too many to name"
    pending.add("vda", "")
    assert await pending.wait(0) == Change(), "the kernel lost some"


async def test_waiting_looks_first_and_after_every_change_and_ends_in_time() -> None:
    events = FakeEvents()
    looks = []

    async def look() -> str | None:
        looks.append(1)
        return "there" if len(looks) == 3 else None

    async with events.watch() as changes:
        events.announce("vdb")
        asyncio.get_running_loop().call_later(0.01, events.announce, "vdb")
        assert await wait_until(look, changes, timeout_s=5, poll_s=5) == "there"
        looks.append(1)
        assert await wait_until(look, changes, timeout_s=0.02) is None
