"""RBD: which image a device is, which client serves it, and what belongs to others."""

import json
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import AuthenticationError, ConnectionDataError, ConnectorError, VolumeBusyError
from quartermaster.connectors.connector import Connector
from quartermaster.support.errors import CommandError
from tests.connectors.cases_ceph import TOOLS, info
from tests.connectors.cases_userspace import daemons_in
from tests.connectors.cases_userspace import prepare as prepare_daemons
from tests.connectors.harness.case import CANARY
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World
from tests.connectors.tools_ceph import OTHER_FSID

PAYLOAD = Path(__file__).parent / "payloads/rbd.json"
QEMU = {"qemu-storage-daemon": "tests.connectors.tools_userspace:qemu_storage_daemon"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **TOOLS, **QEMU})
    made.path("sys/bus/rbd").mkdir(parents=True)
    made.set_fact("images", {"volumes/image-1": "2048", "others/image-1": "2048"})
    made.set_fact("ceph_key", CANARY)
    return made


def mapped(world: World) -> list[str]:
    return sorted(path.name for path in world.path("dev").glob("rbd*"))


@pytest.mark.slow
async def test_a_payload_of_cinder_connects_unchanged(world: World) -> None:
    world.set_fact("images", {"rbd/volume-0000000a": "2048"})
    world.set_fact("names", {"example.com": "192.0.2.5"})
    before = world.snapshot()
    # Its key is the word "test", which stands in every path of this test too.
    payload = json.loads(PAYLOAD.read_text().replace("key = test", f"key = {CANARY}"))["connection_info"]
    attachment = await connector_in(world).connect(payload)
    assert attachment.volume_id == "4c39c3c7-168f-4b32-b585-77f1b3bf0a38"
    (command,) = [argv for argv in world.commands() if argv[0] == "rbd"]
    assert command[3:9] == [
        *("--cluster", "nondefault", "--id", "cinder", "--mon_host"),
        "127.0.0.1:6792,[::1]:6789,[::1]:6790,[::1]:6791,example.com:6791",
    ]
    await connector_in(world).disconnect(payload)
    assert world.snapshot() == before


@pytest.mark.slow
async def test_an_image_of_the_same_name_in_another_pool_is_another_volume(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    await connector.connect(info(name="others/image-1", volume_id="volume-2"))
    assert mapped(world) == ["rbd0", "rbd1"]
    await connector.disconnect(info(name="others/image-1", volume_id="volume-2"))
    assert mapped(world) == ["rbd0"]
    assert await connector.device_path("volume-1")


@pytest.mark.slow
async def test_an_image_of_the_same_name_in_another_cluster_is_another_volume(world: World) -> None:
    connector = connector_in(world)
    world.set_fact("fsid", OTHER_FSID)
    other = info(hosts=["198.51.100.1"], ports=["6789"], volume_id="volume-2")
    await connector.connect(other)
    await connector.disconnect(info())
    assert mapped(world) == ["rbd0"]
    world.set_fact("fsid", "0f1e2d3c-aaaa-bbbb-cccc-123456789abc")
    assert (await connector.connect(info())).device.endswith("/rbd1")
    await connector.disconnect(other)
    assert mapped(world) == ["rbd1"]


@pytest.mark.slow
async def test_an_image_that_somebody_else_has_mapped_is_used_and_stays(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    for file in world.path("state/attachments").iterdir():
        file.unlink()
    world.forget()
    await connector.connect(info(volume_id="volume-2"))
    assert not [argv for argv in world.commands() if argv[0] == "rbd"]
    await connector.disconnect(info(volume_id="volume-2"))
    assert mapped(world) == ["rbd0"]


async def test_without_a_record_the_data_say_what_to_take_away(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    for file in world.path("state/attachments").iterdir():
        file.unlink()
    await connector.disconnect(info())
    assert mapped(world) == []


@pytest.mark.slow
async def test_a_device_that_is_open_stays_attached(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(info())
    world.set_fact("open", [str(world.path("dev/rbd0"))])
    with pytest.raises(VolumeBusyError, match="it is in use"):
        await connector.disconnect(info())
    assert await connector.recover() == ()
    assert await connector.device_path("volume-1")
    await connector.disconnect(info(), force=True)
    assert mapped(world) == []


@pytest.mark.slow
async def test_a_key_that_is_refused_and_an_image_that_is_not_there_are_told_apart(world: World) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    with pytest.raises(AuthenticationError, match="the cluster refuses the user"):
        await connector.connect(info(keyring="another"))
    with pytest.raises(CommandError, match="No such file or directory"):
        await connector.connect(info(name="volumes/nothing"))
    assert world.snapshot() == before


@pytest.mark.parametrize(
    "data",
    [
        {"name": "image-1"},
        {"name": "volumes//image-1"},
        {"name": "volumes/image-1@"},
        {"hosts": []},
        {"ports": ["6789"]},
        {"ports": ["6789", "many"]},
    ],
)
async def test_data_that_name_no_image_or_no_monitor_are_refused(world: World, data: dict[str, Any]) -> None:
    with pytest.raises(ConnectionDataError):
        await connector_in(world).connect(info(**data))


async def test_a_program_that_opens_the_image_itself_gets_its_uri(world: World) -> None:
    attachment = await connector_in(world, do_local_attach=False).connect(info())
    assert attachment.uri
    assert attachment.path == r"rbd:volumes/image-1:id=cinder:mon_host=192.0.2.1\:6789\;192.0.2.2\:6789"


async def client_of(connector: Connector, world: World) -> str:
    await connector.connect(info())
    (file,) = world.path("state/attachments").glob("*.json")
    found: str = json.loads(file.read_text())["client"]
    await connector.disconnect(info())
    return found


@pytest.mark.slow
async def test_where_the_kernel_lacks_a_client_the_next_one_is_taken(world: World) -> None:
    prepare_daemons(world)
    world.add_device("nbd1", size="0")
    connector = connector_in(world)
    with daemons_in(world):
        assert await client_of(connector, world) == "kernel"
        world.path("sys/bus/rbd").rmdir()
        world.add_device("nbd0", size="0")
        assert await client_of(connector, world) == "rbd-nbd"
        for number in (0, 1):
            world.drop_device(f"nbd{number}")
        assert await client_of(connector, world) == "userspace"
        world.path("modules").mkdir()
        world.path("modules/modules.dep").write_text("kernel/drivers/block/rbd.ko.xz: kernel/net/ceph/libceph.ko.xz\n")
        assert await client_of(connector, world) == "kernel"


async def test_a_host_whose_nbd_devices_are_all_taken_says_so(world: World) -> None:
    prepare_daemons(world)
    world.add_device("nbd0", size="8", pid="1")
    with daemons_in(world), pytest.raises(ConnectorError, match="every NBD device of this host is in use"):
        await connector_in(world, clients={"RBD": "rbd-nbd"}).connect(info())
