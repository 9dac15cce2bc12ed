"""Mistakes of callers: told, all at once, and nothing is done."""

import errno
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import (
    ConnectionDataError,
    ConnectionInfo,
    ConnectorError,
    DriverType,
    Secret,
    UnsupportedDriverError,
)
from quartermaster.connectors.blocking import open_connector as open_blocking
from quartermaster.connectors.connector import Connector, open_connector
from quartermaster.connectors.mistakes import squash
from quartermaster.connectors.using import parse_statistics
from quartermaster.host.commands import Command, Result
from quartermaster.host.processes import kill_wait_s
from quartermaster.support.errors import UsageError
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

ISCSI = {"targetPortal": "192.0.2.1:3260", "targetIqn": "iqn.2026-01.test:disk"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**COMMON)
    made.path("disk.img").write_bytes(b"\0" * 4096)
    return made


def local(world: World, **data: Any) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path("disk.img")), "volumeId": "v", **data}}


@pytest.mark.parametrize("mode", ["RO", "readonly", "r", "1"])
async def test_an_access_mode_that_nobody_knows_is_a_mistake(world: World, mode: str) -> None:
    with pytest.raises(ConnectionDataError, match=r"data\.accessMode: is not one of rw, ro"):
        await connector_in(world).connect(local(world, accessMode=mode))


@pytest.mark.parametrize("given", [{}, {"targetLun": None}, {"targetLun": ""}, {"lun": 5}], ids=str)
@pytest.mark.parametrize("type", ["ISCSI", "FIBRE_CHANNEL"])
async def test_nobody_means_lun_0_by_saying_nothing(world: World, type: str, given: dict[str, Any]) -> None:
    data = ISCSI if type == "ISCSI" else {"targetWwn": "500a098280feeba5"}
    with pytest.raises(ConnectionDataError, match=r"data\.targetLun: is missing"):
        await connector_in(world).connect({"driverVolumeType": type, "data": {**data, **given}})


@pytest.mark.parametrize("given", [{"targetLun": -4}, {"targetLun": 1, "targetLuns": [1, -1]}], ids=str)
async def test_no_lun_is_less_than_0(world: World, given: dict[str, Any]) -> None:
    with pytest.raises(ConnectionDataError, match=r"data\.targetLun: is less than 0"):
        await connector_in(world).connect({"driverVolumeType": "ISCSI", "data": {**ISCSI, **given}})


async def test_all_mistakes_of_data_that_are_looked_at_together_are_told_at_once(world: World) -> None:
    data = {"targetPortal": "no host:1", "targetIqn": "", "targetLun": -4, "authUsername": "a", "authPassword": "b\nc"}
    with pytest.raises(ConnectionDataError) as caught:
        await connector_in(world).connect({"driverVolumeType": "ISCSI", "data": data})
    assert {problem.path: problem.message for problem in caught.value.problems} == {
        "data.targetPortal": '"no host:1" is no portal; it is ADDRESS:PORT',
        "data.targetIqn": "is missing",
        "data.targetLun": "is less than 0",
        "data.authPassword": "has a control character in it",
    }


# Of each driver: something mistyped beside what is missing or wrong, and every key that has to be told.
MIXED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "ISCSI": ({"targetLun": "five", "authPassword": 7}, {"targetPortal", "targetIqn", "targetLun", "authPassword"}),
    "ISER": ({"targetPortals": "192.0.2.1", "targetLun": -1}, {"targetPortals", "targetIqn", "targetLun"}),
    "FIBRE_CHANNEL": ({"targetLun": [], "enableWildcardScan": "x"}, {"targetWwn", "targetLun", "enableWildcardScan"}),
    "NBD": ({"port": 0, "export": 5}, {"", "port", "export"}),
    "RBD": ({"ports": [0], "name": "x", "authUsername": []}, {"hosts", "ports", "name", "authUsername"}),
    "NVMEOF": ({"nsId": "x", "volUuid": "y"}, {"targetNqn", "portals", "nsId", "volUuid"}),
    "AOE": ({"targetShelf": "x", "targetLun": 999}, {"targetShelf", "targetLun"}),
    "DRBD": ({"name": "a b", "providerAuth": 5}, {"config", "device", "name", "providerAuth"}),
    "NFS": ({"export": "x", "name": "../y", "options": 5}, {"export", "name", "options"}),
    "SMBFS": ({"export": "x", "username": "a\nb", "password": 5}, {"export", "username", "password"}),
    "GLUSTERFS": ({"name": "/x", "mountPointBase": "x"}, {"export", "name", "mountPointBase"}),
    "CEPHFS": ({"name": "../x", "secret": 5}, {"monitors", "name", "secret"}),
    "SCALITY": ({"name": 5}, {"export", "name"}),
    "VZSTORAGE": ({"name": "/x", "options": 5}, {"export", "name", "options"}),
    "LOCAL": ({"devicePath": "x", "accessMode": "z"}, {"devicePath", "accessMode"}),
    "GPFS": ({"devicePath": "x", "volumeId": []}, {"devicePath", "volumeId"}),
    "SCALEIO": ({"serverPort": "x"}, {"scaleIO_volume_id", "serverIP", "serverPort"}),
    "HGST": ({"name": "a/b", "volumeId": []}, {"name", "volumeId"}),
    "HUAWEISDSHYPERVISOR": ({}, {"volumeId"}),
    "DISCO": ({"serverPort": "x"}, {"discoId", "serverIp", "serverPort"}),
    "QUOBYTE": ({"name": "../x"}, {"export", "name"}),
}


@pytest.mark.parametrize("type", MIXED)
async def test_what_is_missing_and_what_is_mistyped_is_told_at_once_with_the_fix(world: World, type: str) -> None:
    data, wrong = MIXED[type]
    with pytest.raises(ConnectionDataError) as caught:
        await connector_in(world).connect({"driverVolumeType": type, "data": data, "serial": ["x"]})
    told = {problem.path: problem for problem in caught.value.problems}
    assert {*told} == {"serial", *(f"data.{key}" if key else "data" for key in wrong)}
    assert [path for path, problem in told.items() if not problem.message or not problem.fix] == []
    assert len(told) == len(caught.value.problems)


def test_mistakes_are_tried_for_every_type() -> None:
    assert {*MIXED} == {*DriverType}


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("ISCSI", {"targetPortals": "x", "targetIqns": "y", "targetLuns": "z"}),
        ("NBD", {"host": 5}),
        ("SCALEIO", {"scaleIO_volname": 5, "sdcGuid": 5}),
        ("SCALITY", {"sofsPath": 5}),
        ("NVMEOF", {"targetNqn": "nqn.test", "targetPortal": 5}),
    ],
)
async def test_what_a_mistyped_key_may_stand_for_is_not_told_as_missing(
    world: World, type: str, data: dict[str, Any]
) -> None:
    with pytest.raises(ConnectionDataError) as caught:
        await connector_in(world).connect({"driverVolumeType": type, "data": data})
    assert {squash(problem.path.removeprefix("data.")) for problem in caught.value.problems} == {
        squash(key) for key in data if key != "targetNqn"
    }


@pytest.mark.parametrize("given", [None, 5, "text", [], b"x", 5.5], ids=str)
async def test_what_is_no_connection_information_is_told(world: World, given: Any) -> None:
    connector = connector_in(world)
    for call in (connector.connect, connector.disconnect, connector.extend):
        with pytest.raises(ConnectionDataError, match="it is not an object"):
            await call(given)
    with pytest.raises(ConnectionDataError, match="data: is not an object"):
        ConnectionInfo("ISCSI", given)
    if not isinstance(given, str | bytes):
        with pytest.raises(ConnectionDataError, match="driverVolumeType: is not text"):
            ConnectionInfo(given, {})
        with pytest.raises(ConnectionDataError, match="JSON is text or bytes"):
            ConnectionInfo.from_json(given)


@pytest.mark.parametrize("given", [5, ["v"], b"v", 5.5, None, ""], ids=str)
async def test_what_is_no_volume_id_is_told(world: World, given: Any) -> None:
    connector = connector_in(world)
    calls: list[Callable[[], Any]] = [
        lambda: connector.device_path(given),
        lambda: connector.find(given),
        lambda: connector.statistics(given),
        lambda: connector.mount(given, "/nowhere"),
        lambda: connector.unmount(given, "/nowhere"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="id"):
            await call()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"target": value} for value in (5, [], None, 5.5, "", "a\0b")),
        *({"key": value} for value in (5, ["k"], None)),
        *({"options": value} for value in (5, [5], None, b"noatime")),
        *({"file_system": value} for value in (5, ["ext4"], None)),
        *({name: value} for name in ("read_only", "overwrite_unknown") for value in ("no", None, 1)),
    ],
    ids=str,
)
async def test_a_wrong_type_for_a_mount_is_told_and_nothing_is_done(world: World, wrong: dict[str, Any]) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.forget()
    with pytest.raises(UsageError):
        await connector.mount("v", **{"target": "/nowhere", **wrong})
    assert world.commands() == []


@pytest.mark.parametrize(
    "wrong",
    [
        *({"clients": 5}, {"clients": {"ISCSI": 5}}, {"directory": 5}, {"mount_directory": 5.5}, {"host": 5}),
        *({"ip": 5}, {"initiator": ["x"]}, {"os_type": 5}, {"os_type": "BEOS"}),
        *({name: value} for name in ("multipath", "do_local_attach") for value in ("no", None, 1)),
    ],
    ids=str,
)
def test_a_wrong_type_for_a_connector_is_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot use"):
        open_connector(**wrong)


@pytest.mark.parametrize("given", ["no", "", 0, 1, b"", []], ids=repr)
async def test_what_is_neither_true_nor_false_is_told_and_nothing_is_done(world: World, given: Any) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    before = world.snapshot()
    calls: list[Callable[[], Any]] = [
        lambda: connector.disconnect(local(world), force=given),
        lambda: connector.unmount("v", "/nowhere", force=given),
        lambda: connector.list(foreign=given),
        lambda: connector.properties(multipath=given),
        lambda: connector.properties(do_local_attach=given),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="cannot use a value of the type"):
            await call()
    assert world.snapshot() == before


def test_every_argument_that_is_true_or_false_is_looked_at() -> None:
    """Those that the other tests name; a new one belongs there."""
    doors = [open_connector, *(each for name, each in vars(Connector).items() if not name.startswith("_"))]
    found = {
        (door.__name__, name)
        for door in doors
        for name, parameter in inspect.signature(door).parameters.items()
        if str(parameter.annotation).startswith("bool")
    }
    assert found == {
        *{("open_connector", "multipath"), ("open_connector", "do_local_attach"), ("list", "foreign")},
        *{("properties", "multipath"), ("properties", "do_local_attach"), ("disconnect", "force")},
        *{("unmount", "force"), ("mount", "read_only"), ("mount", "overwrite_unknown")},
    }


@pytest.mark.parametrize("given", [7, ["192.0.2.1:3260"], {"portal": 1}], ids=str)
async def test_a_mistyped_key_comes_with_the_example_of_a_missing_one(world: World, given: Any) -> None:
    data = {"targetIqn": ISCSI["targetIqn"], "targetLun": 1}
    fixes = []
    for portal in ({}, {"targetPortal": given}):
        with pytest.raises(ConnectionDataError) as caught:
            await connector_in(world).connect({"driverVolumeType": "ISCSI", "data": {**data, **portal}})
        fixes.append([(problem.path, problem.fix) for problem in caught.value.problems])
    assert fixes[0] == fixes[1] == [("data.targetPortal", 'for example "192.0.2.1:3260"')]


async def test_a_nul_in_the_data_is_a_mistake_and_leaves_no_record(world: World) -> None:
    with pytest.raises(ConnectionDataError, match=r"data\.devicePath: has a NUL character in it"):
        await connector_in(world).connect(local(world, devicePath="/di\0sk"))
    assert list(world.path("state/attachments").iterdir()) == []


async def test_a_path_may_be_one_of_pathlibs(world: World) -> None:
    attachment = await connector_in(world).connect(local(world, devicePath=world.path("disk.img")))
    assert attachment.device.endswith("loop0")


@pytest.mark.parametrize("clients", [{"NOPE": "kernel"}, {"ISCSI": "nope"}, {"NDB": "userspace"}], ids=str)
def test_a_mistyped_client_is_told_at_once(clients: dict[str, str]) -> None:
    with pytest.raises(UnsupportedDriverError):
        open_connector(clients=clients)


async def test_without_a_local_attach_nothing_is_attached(world: World) -> None:
    before = world.snapshot()
    with pytest.raises(UnsupportedDriverError, match="LOCAL has no URI"):
        await connector_in(world, do_local_attach=False).connect(local(world))
    assert world.snapshot() == before


async def test_the_blocking_calls_say_where_they_cannot_be_used(tmp_path: Path) -> None:
    with (
        open_blocking(directory=tmp_path) as connector,
        pytest.raises(UsageError, match="cannot wait inside a running event loop"),
    ):
        connector.recover()


def test_any_bytes_can_be_a_key() -> None:
    from quartermaster.connectors.connector import _secret

    key = bytes(range(256))
    assert _secret(key).reveal().encode(errors="surrogateescape") == key
    assert _secret(Secret("k")) == _secret("k") == _secret(b"k")


async def test_what_is_not_known_of_a_device_is_not_said_to_be_nothing(world: World) -> None:
    await connector_in(world).connect(local(world))
    found = await connector_in(world).statistics("v")
    assert (found.size, found.used, found.available, found.files, found.files_used) == (4096, None, None, None, None)


def test_a_file_system_that_does_not_count_files_has_none_to_tell() -> None:
    found = parse_statistics("4096 100 60 50 0 0\n")
    assert (found.used, found.available, found.files, found.files_used) == (163840, 204800, None, None)


@pytest.mark.parametrize("seconds", ["5", 0, -1, True, float("nan")], ids=repr)
async def test_a_time_that_is_none_is_told(world: World, seconds: Any) -> None:
    with pytest.raises(UsageError, match="it is no number of seconds above 0"):
        await connector_in(world).connect(local(world), timeout_s=seconds)
    with pytest.raises(UsageError, match="it is no number of seconds above 0"):
        open_connector(timeout_s=seconds)


async def test_a_program_that_hangs_ends_before_the_time_of_the_call_is_up(world: World) -> None:
    """With what it takes to end it: the signal, and the wait for one that hears none."""
    connector = connector_in(world)
    await connector.connect(local(world))
    context = connector._attaching.context_of("v", timeout_s=8.0)
    for given, ends_s in ((Command(("x",), verb="try"), 8.0), (Command(("x",), verb="try", timeout_s=1.0), 3.0)):
        asked: list[Command] = []
        context.commands._commands = Asked(asked)  # type: ignore[attr-defined]
        await context.commands.run(given)
        (bound,) = asked
        assert bound.timeout_s + bound.grace_s + kill_wait_s(bound.grace_s) <= ends_s
        assert bound.timeout_s >= min(given.timeout_s, 6.0)


class Asked:
    """Commands that are not run."""

    def __init__(self, asked: list[Command]) -> None:
        self._asked = asked

    async def run(self, command: Command) -> Result:
        self._asked.append(command)
        return Result()


async def test_a_full_disk_says_where_and_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("quartermaster.host.files._write_whole", full)
    with pytest.raises(ConnectorError, match=r"attachments/v\.json: No space left on device") as caught:
        await connector_in(world).connect(local(world))
    assert "make room" in caught.value.hint


async def test_a_kernel_without_nvme_over_fabrics_is_told_from_a_subsystem_that_is_not_there(world: World) -> None:
    world.install(nvme="tests.connectors.tools_nvmeof:nvme_without_the_kernel")
    data = {"targetNqn": "nqn.2026-01.test:disk", "portals": [["192.0.2.1", "4420", "tcp"]]}
    with pytest.raises(ConnectorError, match=r"the kernel has no .*/dev/nvme-fabrics") as caught:
        await connector_in(world).connect({"driverVolumeType": "NVMEOF", "data": data})
    assert caught.value.hint == "load it: modprobe nvme-tcp"


async def test_a_device_that_went_away_and_is_made_anew_is_ours(world: World) -> None:
    world.install(losetup="tests.connectors.harness.tools:losetup")
    node = world.add_device("loop0", size="8", ro="0", loop__backing_file=str(world.path("disk.img")))
    connector = connector_in(world)
    await connector.connect(local(world))
    world.drop_device(node.name)
    await connector.connect(local(world))
    await connector.disconnect(local(world))
    assert not world.path("sys/class/block/loop0").exists()


@pytest.mark.parametrize(
    ("portal", "text"),
    [
        ("192.0.2.1:99999", "is not a number between 1 and 65535"),
        ("192.0.2.1:", "has no port number after its address"),
        ("::1:33260", "an address of IPv6 stands in brackets before its port"),
    ],
)
async def test_a_portal_says_what_is_wrong_with_it(world: World, portal: str, text: str) -> None:
    with pytest.raises(ConnectionDataError, match=text):
        await connector_in(world).connect(
            {"driverVolumeType": "ISCSI", "data": {**ISCSI, "targetPortal": portal, "targetLun": 1}}
        )


@pytest.mark.parametrize(("type", "shape"), [("NFS", "HOST:/PATH"), ("SMBFS", "//HOST/SHARE")])
async def test_an_export_of_another_shape_is_refused_before_anything_is_mounted(
    world: World, type: str, shape: str
) -> None:
    with pytest.raises(ConnectionDataError, match=f"data.export: is not {shape}"):
        await connector_in(world).connect({"driverVolumeType": type, "data": {"export": "x"}})
    assert world.commands() == []


async def test_the_file_of_a_userspace_client_is_no_mount_of_somebody_else(world: World) -> None:
    world.add_mount("/dev/fuse", str(world.path("state/userspace/abc/volume")), "fuse")
    assert (await connector_in(world).list()).foreign == ()


async def test_a_disconnect_without_a_record_says_which_path_is_gone(world: World) -> None:
    attachment = await connector_in(world).connect(local(world))
    world.path("state/attachments/v.json").write_bytes(b"{")
    assert await connector_in(world).disconnect(local(world)) == attachment.path
    assert await connector_in(world).disconnect(local(world)) == ""
