"""Encrypted volumes and corrupted mounts, on a host of files."""

from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import AuthenticationError, ConnectorError, IdentityMismatchError, VolumeBusyError
from quartermaster.connectors.filesystems import identity_on
from quartermaster.connectors.luks import luks_name
from quartermaster.host.formatting import BEGUN_LABEL
from quartermaster.support.errors import DeviceRefusedError, MountConflictError
from tests.connectors import tools_files
from tests.connectors.harness.case import CANARY
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow

NAME = luks_name("volume-1")
UUID, LABEL = identity_on("volume-1")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **tools_files.TOOLS})
    made.add_device("vdb", serial="first")
    made.path("dev/mapper").mkdir()
    made.path("sys/class/misc/device-mapper").mkdir(parents=True)
    made.set_fact("files", {"192.0.2.1:/vol": ["volume-1"]})
    return made


def local(world: World) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path("dev/vdb")), "volumeId": "volume-1"}}


def changes(world: World) -> list[list[str]]:
    looks = ("blkid", "cmp", "dd", "stat")
    return [argv for argv in world.commands() if argv[0] not in looks and argv[:2] != ["wipefs", "--no-act"]]


async def test_a_blank_volume_is_encrypted_opened_and_mounted_by_these_commands(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    before = world.snapshot()
    await connector.connect(local(world))
    target = str(tmp_path / "mounted")
    mounted = await connector.mount("volume-1", target, key=CANARY)
    plain = f"{{world}}/dev/mapper/{NAME}"
    assert mounted.source == plain.replace("{world}", str(world.directory))
    luks = ["--batch-mode", "--type", "luks2", "--uuid", UUID, "--label", BEGUN_LABEL, "--key-file", "-"]
    assert changes(world) == [
        ["cryptsetup", "luksFormat", *luks, "{world}/dev/vdb"],
        ["cryptsetup", "config", "--label", LABEL, "{world}/dev/vdb"],
        ["cryptsetup", "open", "--type", "luks", "--key-file", "-", "--disable-keyring", "{world}/dev/vdb", NAME],
        ["mkfs.ext4", "-q", "-E", "nodiscard", "-L", BEGUN_LABEL, "-U", UUID, plain],
        ["e2label", plain, LABEL],
        ["mount", "-t", "ext4", "--source", plain, "--target", target],
    ]
    assert await connector.unmount("volume-1", target) is True
    assert changes(world)[6:] == [["umount", "--no-canonicalize", target], ["cryptsetup", "close", NAME]]
    await connector.disconnect(local(world))
    assert {**world.snapshot(), "facts.json": ""} == {**before, "facts.json": ""}


async def test_an_encrypted_volume_that_is_taken_away_by_force_is_unmounted_lazily_and_closes_with_its_last_user(
    world: World, tmp_path: Path
) -> None:
    connector = connector_in(world)
    target = str(tmp_path / "mounted")
    await connector.connect(local(world))
    await connector.mount("volume-1", target, key=CANARY)
    await connector.disconnect(local(world), force=True)
    assert changes(world)[6:] == [
        ["umount", "--no-canonicalize", "--lazy", target],
        ["cryptsetup", "close", "--deferred", NAME],
    ]


async def test_nothing_is_encrypted_where_the_kernel_could_not_open_it(world: World, tmp_path: Path) -> None:
    world.path("sys/class/misc/device-mapper").rmdir()
    connector = connector_in(world)
    await connector.connect(local(world))
    before = world.snapshot()
    with pytest.raises(ConnectorError, match="this kernel has no device mapper"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert changes(world) == []
    assert world.snapshot() == before


async def test_said_twice_it_is_as_once(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    first = await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    world.forget()
    assert await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY) == first
    assert not [argv for argv in changes(world) if argv[0] != "fsck.ext4"]


async def test_a_wrong_key_opens_nothing_and_is_not_shown(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    tools_files.put(world, str(world.path("dev/vdb")), type="crypto_LUKS", usage="crypto", key="another")
    with pytest.raises(AuthenticationError, match="the key does not fit") as caught:
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    said = [str(caught.value), repr(caught.value.__cause__), *(word for argv in world.commands() for word in argv)]
    assert not [text for text in said if CANARY in text]
    assert not world.path(f"dev/mapper/{NAME}").exists()


async def test_an_encrypted_volume_without_its_key_and_a_plain_one_with_a_key_are_refused(
    world: World, tmp_path: Path
) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    device = str(world.path("dev/vdb"))
    tools_files.put(world, device, type="crypto_LUKS", usage="crypto", key="another")
    with pytest.raises(DeviceRefusedError, match="it is encrypted"):
        await connector.mount("volume-1", str(tmp_path / "mounted"))
    tools_files.put(world, device, type="xfs", usage="filesystem", uuid="1-2")
    with pytest.raises(DeviceRefusedError, match=r"cannot encrypt .* it holds xfs"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert not changes(world)


async def test_an_encryption_that_was_interrupted_is_begun_anew(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    own = {"uuid": UUID, "label": BEGUN_LABEL, "key": "of a process that died"}
    tools_files.put(world, str(world.path("dev/vdb")), type="crypto_LUKS", usage="crypto", **own)
    await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)
    assert changes(world)[0] == ["wipefs", "--all", "--quiet", "{world}/dev/vdb"]


async def test_a_container_that_lies_on_another_device_is_not_used(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.add_device(f"mapper/{NAME}", slaves__vdx="")
    with pytest.raises(IdentityMismatchError, match="it lies on vdx, not on vdb"):
        await connector.mount("volume-1", str(tmp_path / "mounted"), key=CANARY)


async def test_a_volume_whose_container_is_open_is_not_taken_away(world: World) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    holders = world.path("sys/class/block/vdb/holders")
    holders.mkdir()
    (holders / "dm-0").touch()
    with pytest.raises(VolumeBusyError, match="dm-0 is built on it"):
        await connector.disconnect(local(world))


async def test_growing_reaches_the_container_and_the_file_system(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    target = str(tmp_path / "mounted")
    await connector.mount("volume-1", target, key=CANARY)
    world.forget()
    await connector.extend(local(world), mounted=target)
    assert changes(world) == [["cryptsetup", "resize", NAME], ["resize2fs", f"{{world}}/dev/mapper/{NAME}"]]


async def test_what_is_mounted_of_others_is_neither_unmounted_nor_grown(world: World, tmp_path: Path) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    world.add_device("vdc")
    target = str(tmp_path / "another")
    world.add_mount(str(world.path("dev/vdc")), target, "ext4")
    with pytest.raises(MountConflictError, match=r"cannot unmount the volume volume-1: .* is .*/dev/vdc"):
        await connector.unmount("volume-1", target, force=True)
    with pytest.raises(MountConflictError, match=r"cannot grow the volume volume-1: .* is .*/dev/vdc"):
        await connector.extend(local(world), mounted=target)
    assert not changes(world)
    assert len(world.mounts()) == 2


def show_mount(world: World, number: str, target: Path, source: str) -> None:
    """As the kernel shows it, with the number of the device; of all devices it knows only the root's."""
    world.path("sys/dev/block/8:1").mkdir(parents=True, exist_ok=True)
    with world.path("proc/self/mountinfo").open("a") as table:
        table.write(f"77 1 {number} / {target} rw - ext4 {source} rw\n")


async def test_the_mount_of_a_device_that_is_gone_can_be_taken_away(world: World, tmp_path: Path) -> None:
    link = world.path("dev/disk/by-path/disk")
    link.symlink_to(world.path("dev/vdb"))
    given = {"driverVolumeType": "LOCAL", "data": {"devicePath": str(link), "volumeId": "volume-1"}}
    connector = connector_in(world)
    await connector.connect(given)
    number = world.path("sys/class/block/vdb/dev").read_text()
    show_mount(world, number, tmp_path / "mounted", str(world.path("dev/vdb")))
    world.drop_device("vdb")
    world.add_device("vdc", serial="first", dev="250:9")
    link.unlink()
    link.symlink_to(world.path("dev/vdc"))
    assert (await connector.connect(given)).device == str(world.path("dev/vdc"))
    assert await connector.unmount("volume-1", str(tmp_path / "mounted")) is True


@pytest.mark.parametrize(("number", "source"), [("8:1", "/dev/root"), ("0:99", "/dev/not-in-this-container")])
async def test_a_mount_whose_source_has_no_node_here_is_somebody_elses(
    world: World, tmp_path: Path, number: str, source: str
) -> None:
    connector = connector_in(world)
    await connector.connect(local(world))
    show_mount(world, number, tmp_path / "mounted", source)
    with pytest.raises(MountConflictError, match=source):
        await connector.unmount("volume-1", str(tmp_path / "mounted"), force=True)
    assert not changes(world)


async def test_a_mount_that_its_server_has_forgotten_is_made_anew_by_the_next_connect(world: World) -> None:
    info = {"driverVolumeType": "NFS", "data": {"export": "192.0.2.1:/vol", "name": "volume-1", "volumeId": "n1"}}
    connector = connector_in(world)
    attachment = await connector.connect(info)
    target = str(Path(attachment.path).parent)
    world.set_fact("health", {target: "Stale file handle"})
    world.forget()
    assert await connector.connect(info) == attachment
    assert [argv[:3] for argv in world.commands() if argv[0] in ("mount", "umount")] == [
        ["umount", "--no-canonicalize", "--lazy"],
        ["mount", "-t", "nfs"],
    ]
    assert len(world.mounts()) == 2
