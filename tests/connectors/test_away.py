"""A storage system that is gone or silent: every look says so within its time, and nobody is told that all is well."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quartermaster.cli.connecting import _table
from quartermaster.connectors import NotAnsweringError, UnreachableError
from quartermaster.support.errors import CommandDeadlineError, DeadlineError
from tests.connectors.cases import CASES
from tests.connectors.cases_iscsi import PORTAL
from tests.connectors.harness.case import Case
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow  # every command is a process


def disks_are(state: str) -> Callable[[World], None]:
    def cut(world: World) -> None:
        for file in world.path("sys/class/block").glob("sd*/device/state"):
            file.write_text(state)

    return cut


def controllers_are(state: str) -> Callable[[World], None]:
    def cut(world: World) -> None:
        for file in world.path("sys/class/nvme").glob("*/state"):
            file.write_text(state)

    return cut


def mounts_say(reason: str) -> Callable[[World], None]:
    def cut(world: World) -> None:
        world.set_fact("health", {mount["target"]: reason for mount in world.mounts() if mount["target"] != "/"})

    return cut


def files_say(reason: str) -> Callable[[World], None]:
    def cut(world: World) -> None:
        world.set_fact("away", {str(file): reason for file in world.path("state/userspace").glob("*/volume")})

    return cut


def the_target_is_down(world: World) -> None:
    (world.path("sys/class/block/etherd!e16.241") / "state").write_text("down")


GONE: dict[str, tuple[Callable[[World], None], str]] = {
    "iscsi": (disks_are("blocked"), "the kernel says that sdb is blocked"),
    "iser to read": (disks_are("transport-offline"), "the kernel says that sdb is transport-offline"),
    "iscsi multipath": (disks_are("transport-offline"), "sdb is transport-offline and sdc is transport-offline"),
    "fibre channel": (disks_are("blocked"), "the kernel says that sdb is blocked"),
    "nvmeof": (controllers_are("connecting"), "the kernel says that nvme0 is connecting"),
    "nvmeof over two portals": (controllers_are("connecting"), "nvme0 is connecting and nvme1 is connecting"),
    "aoe": (the_target_is_down, "the kernel says that e16.241 is down"),
    "nfs": (mounts_say("Stale file handle"), r"is gone \(ESTALE\)"),
    "smbfs": (mounts_say("Host is down"), r"is gone \(EHOSTDOWN\)"),
    "glusterfs": (mounts_say("Transport endpoint is not connected"), r"is gone \(ENOTCONN\)"),
    "cephfs by fuse": (mounts_say("Transport endpoint is not connected"), r"is gone \(ENOTCONN\)"),
    "scality": (mounts_say("Transport endpoint is not connected"), r"is gone \(ENOTCONN\)"),
    "vzstorage": (mounts_say("Transport endpoint is not connected"), r"is gone \(ENOTCONN\)"),
    "nbd userspace": (files_say("Input/output error"), "it cannot be read: Input/output error"),
    "iscsi userspace": (files_say("Operation not supported"), "it cannot be read: Operation not supported"),
    "rbd userspace": (files_say(""), "its storage system does not answer"),
    "glusterfs userspace": (files_say(""), "its storage system does not answer"),
}


@pytest.mark.parametrize("name", GONE)
async def test_a_volume_behind_which_nobody_answers_is_told_from_one_that_can_be_used(
    name: str, tmp_path: Path
) -> None:
    case = _case(name)
    world = case.world(tmp_path)
    cut, words = GONE[name]
    with case.stub(world):
        connector = connector_in(world, **case.options)
        found = await connector.connect(case.info(world))
        assert await connector.device_path(found.volume_id) == found.path
        cut(world)
        started = time.monotonic()
        with pytest.raises(UnreachableError, match=words) as caught:
            await connector.device_path(found.volume_id, timeout_s=3)
        assert time.monotonic() - started < 6
        assert f"it is here as {found.path}, but" in caught.value.message
        inventory = await connector.list(foreign=False, timeout_s=3)
        (listed,) = inventory.attachments
        assert (listed.state, listed.present) == ("connected", True)
        assert "it is here as" in listed.problem
        assert " unreachable " in _table(inventory)


@pytest.mark.parametrize(
    ("name", "file", "state"),
    [
        ("iscsi multipath", "sys/class/block/sdb/device/state", "transport-offline"),
        ("nvmeof over two portals", "sys/class/nvme/nvme0/state", "connecting"),
    ],
)
async def test_a_volume_with_one_path_left_can_be_used(name: str, file: str, state: str, tmp_path: Path) -> None:
    case = _case(name)
    world = case.world(tmp_path)
    connector = connector_in(world, **case.options)
    found = await connector.connect(case.info(world))
    world.path(file).write_text(state)
    assert await connector.device_path(found.volume_id) == found.path


@pytest.mark.parametrize(
    ("name", "tool", "server"),
    [
        ("nfs", "mount", r"192\.0\.2\.1:/vol"),
        ("cephfs", "mount", r"192\.0\.2\.1"),
        ("iscsi", "iscsiadm", PORTAL.replace(".", r"\.")),
        ("nvmeof", "nvme", r"192\.0\.2\.1"),
        ("rbd", "rbd", r"192\.0\.2\.1"),
        ("rbd userspace", "qemu-storage-daemon", r"192\.0\.2\.1"),
        ("nbd userspace", "qemu-storage-daemon", r"nbd://"),
        ("nbd", "nbd-client", r"nbd://"),
    ],
)
async def test_a_server_that_never_answers_is_named_when_the_time_is_up(
    name: str, tool: str, server: str, tmp_path: Path
) -> None:
    case = _case(name)
    world = case.world(tmp_path)
    with case.stub(world):
        before = world.snapshot()
        world.install(**{tool: "tests.connectors.harness.tools:hanging"})
        with pytest.raises(NotAnsweringError, match=f"{server}.* did not answer in time") as caught:
            await connector_in(world, **case.options).connect(case.info(world), timeout_s=2)
        assert isinstance(caught.value, UnreachableError)
        assert isinstance(caught.value, DeadlineError)
        assert caught.value.reason == "Unreachable"
        assert not isinstance(caught.value, CommandDeadlineError)
        world.install(**{tool: {**COMMON, **case.tools}[tool]})
        await connector_in(world, **case.options).recover()
        assert case.kept(world.snapshot()) == case.kept(before)


def _case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
