"""Devices: hardware shown by a sysfs of our own, and real loop devices for what is on them."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from quartermaster.host.commands import HostCommands
from quartermaster.host.devices import (
    Device,
    HostDevices,
    Kind,
    Reason,
    Roots,
    Signature,
    StandIn,
    State,
    Surroundings,
    add_disk,
    judge,
    named_by,
    pull_disk,
    twins,
)
from quartermaster.host.devices.signatures import everything_found, parse_export, probe
from quartermaster.host.devices.sysfs import names, read_device, read_index
from quartermaster.host.mountinfo import parse_mountinfo
from quartermaster.host.mounts import HostMounts
from quartermaster.support.errors import HostError
from tests.host.namespaces import loop_device, write_partition_table

GIB = 1 << 30
commands = HostCommands()


def disk(**changes: object) -> Device:
    blank = Device("/dev/vdb", "vdb", "253:16", Kind.DISK, 10 * GIB, serial="S1")
    return msgspec.structs.replace(blank, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "reason", "words"),
    [
        (disk(kind=Kind.PARTITION), Reason.NOT_WHOLE, "is a partition and not a whole device"),
        (disk(kind=Kind.LOOP), Reason.NOT_A_DISK, "is a loop device"),
        (disk(kind=Kind.NETWORK), Reason.NOT_A_DISK, "is a volume of another system"),
        (disk(links=("/dev/disk/by-id/quartermaster-v1",)), Reason.ATTACHED_VOLUME, "is attached to this host"),
        (disk(mounts=("/boot", "/data")), Reason.SYSTEM_DISK, "it is mounted at /boot"),
        (disk(swap=True), Reason.SWAP, "is in use as swap"),
        (disk(mounts=("/data",)), Reason.MOUNTED, "is mounted at /data"),
        (disk(partitions=("vdb1", "vdb2")), Reason.PARTITIONED, "has partitions: vdb1, vdb2"),
        (disk(holders=("dm-0",)), Reason.HELD, "is in use by dm-0"),
        (disk(read_only=True), Reason.READ_ONLY, "is read-only"),
        (disk(removable=True), Reason.REMOVABLE, "is removable"),
        (disk(size=GIB - 1), Reason.TOO_SMALL, "has 1023 MiB, less than the 1024 MiB"),
        (disk(unreadable="Input/output error"), Reason.UNREADABLE, "cannot be read: Input/output error"),
        (disk(signatures=(Signature("gpt", "partition table"),)), Reason.PARTITIONED, "a partition table (gpt)"),
        (disk(signatures=(Signature("LVM2_member", "raid"),)), Reason.MEMBER, "is a physical volume of LVM"),
        (disk(signatures=(Signature("zfs_member", "filesystem"),)), Reason.MEMBER, "is a member of a ZFS pool"),
        (disk(signatures=(Signature("ceph_bluestore", "other"),)), Reason.MEMBER, "an OSD of a Ceph cluster"),
        (disk(signatures=(Signature("nvidia_raid_member", "raid"),)), Reason.MEMBER, "(nvidia_raid_member)"),
        (disk(signatures=(Signature("xfs", "filesystem", "u", "data"),)), Reason.FOREIGN_DATA, '(xfs named "data")'),
        (
            disk(signatures=(Signature("xfs", "filesystem", "u", "qm-a"),)),
            Reason.OTHER_CLUSTER,
            "of another cluster, or of an earlier life of this one",
        ),
    ],
)
def test_every_rejected_device_has_a_reason(device: Device, reason: Reason, words: str) -> None:
    verdict = judge(device, Surroundings())
    assert (verdict.state, verdict.reason) == (State.REJECTED, reason)
    assert words in verdict.message
    assert verdict.message.startswith("/dev/vdb ")


def test_a_blank_idle_whole_disk_is_available_and_one_of_ours_is_in_use() -> None:
    assert judge(disk(), Surroundings()).usable
    ours = disk(signatures=(Signature("xfs", "filesystem", "uuid-1", "qm-a"),), mounts=("/bricks/1",))
    assert judge(ours, Surroundings(own=("uuid-1",))).state is State.IN_USE


def test_a_loop_device_that_stands_for_a_disk_is_a_disk() -> None:
    assert judge(disk(kind=Kind.LOOP, stand_in=True), Surroundings()).usable


def test_two_devices_with_one_identity_are_both_rejected() -> None:
    pair = [disk(path="/dev/sda", wwn="naa.5000"), disk(path="/dev/sdb", wwn="0x5000"), disk(path="/dev/sdc")]
    surroundings = Surroundings(twins=twins(pair))
    assert [judge(device, surroundings).reason for device in pair] == ["DuplicateIdentity", "DuplicateIdentity", ""]
    assert "the same identity as /dev/sda" in judge(pair[1], surroundings).message


def test_the_paths_of_a_multipath_device_are_not_its_twins() -> None:
    device = disk(path="/dev/dm-0", kind=Kind.MULTIPATH, wwn="36001405aaaaaaaaaaaaaaaaaaaaaaaaa")
    path = disk(path="/dev/sda", wwn="naa.6001405aaaaaaaaaaaaaaaaaaaaaaaaa", holders=("dm-0",))
    assert twins([path, device]) == {}


@pytest.mark.parametrize("name", ["S1", "wwn-0x5000c500a1b2c3d4", "0x5000C500A1B2C3D4", "naa.5000c500a1b2c3d4"])
def test_a_device_is_named_by_its_serial_number_or_wwn(name: str) -> None:
    assert named_by(disk(wwn="naa.5000c500a1b2c3d4"), name)


@pytest.mark.parametrize("name", ["/dev/vdb", "vdb", "", " ", "s1", "S2", "0x"])
def test_a_device_is_named_by_nothing_else(name: str) -> None:
    assert not named_by(disk(wwn="naa.5000c500a1b2c3d4"), name)
    assert not named_by(disk(serial=""), name)


def hardware(root: Path) -> Roots:
    """An NVMe disk, a SCSI disk with LVM on a partition, a multipath device, and things that are no disks."""
    files = {
        "nvme0n1/size": "1953525168", "nvme0n1/dev": "259:0", "nvme0n1/wwid": "eui.0025385b21404321",
        "nvme0n1/device/serial": "S5GXNF0R ", "nvme0n1/device/model": "Samsung SSD 980",
        "nvme0n1/queue/rotational": "0", "nvme0n1/ro": "0",
        "nvme0c0n1/size": "1953525168", "nvme0c0n1/hidden": "1",
        "sda/size": "4096000", "sda/dev": "8:0", "sda/device/wwid": "naa.5000c500a1b2c3d4",
        "sda/device/model": "ST4000", "sda/queue/rotational": "1", "sda/removable": "0",
        "sda/sda1/partition": "1", "sda/sda1/size": "2048", "sda/sda1/dev": "8:1", "sda/sda1/holders/dm-1": "",
        "sda/sda10/partition": "10", "sda/sda10/size": "2048", "sda/sda2/partition": "2", "sda/sda2/size": "2048",
        "sdb/size": "8192", "sdb/dev": "8:16", "sdb/device/wwid": "t10.ATA QEMU", "sdb/holders/dm-0": "",
        "dm-0/size": "8192", "dm-0/dev": "252:0", "dm-0/dm/uuid": "mpath-36001405aaaaaaaaaaaaaaaaaaaaaaaaa",
        "dm-1/size": "8192", "dm-1/dev": "252:1", "dm-1/dm/uuid": "LVM-abc", "sr0/size": "2097151", "sr0/dev": "11:0",
        "vdb/size": "8192", "vdb/dev": "253:16", "vdb/serial": "V1", "vdb/ro": "1", "loop0/size": "0",
        "rbd0/size": "8192", "rbd0/dev": "251:0", "zram0/size": "8192", "zram0/dev": "250:0",
    }  # fmt: skip
    for name, content in files.items():
        file = root / "sys/block" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    (root / "sys/block/sdb/device/vpd_pg80").write_bytes(b"\0\x80\0\x06QM0001  ")
    classes = root / "sys/class/block"
    classes.mkdir(parents=True)
    for directory in (root / "sys/block").iterdir():
        (classes / directory.name).symlink_to(directory)
        for inner in directory.iterdir():
            if (inner / "partition").exists():
                (classes / inner.name).symlink_to(inner)
    by_id = root / "dev/disk/by-id"
    by_id.mkdir(parents=True)
    (by_id / "nvme-Samsung_980").symlink_to("../../nvme0n1")
    (root / "proc").mkdir()
    (root / "proc/swaps").write_text("Filename Type Size Used Priority\n/dev/zram0 partition 1 0 -2\n")
    (root / "udev").mkdir()
    (root / "udev/b251:0").write_text("S:rbd/x\nE:ID_SERIAL_SHORT=FROM-UDEV\n")
    return Roots(root / "sys", root / "dev", root / "proc", root / "udev")


MOUNTS = parse_mountinfo("1 0 252:1 / / rw - ext4 /dev/mapper/root rw\n2 1 0:40 / /data rw - btrfs /dev/nvme0n1 rw\n")


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, Device]:
    roots = hardware(tmp_path)
    index = read_index(roots, MOUNTS)
    found = [read_device(roots, name, index) for name in names(roots)]
    return {device.name: device for device in found if device is not None}


def test_hidden_paths_and_empty_devices_are_left_out(shown: dict[str, Device]) -> None:
    assert list(shown) == ["sda", "sdb", "sr0", "vdb", "dm-0", "dm-1", "rbd0", "zram0", "nvme0n1"]


def test_identity_is_read_from_where_each_bus_has_it(shown: dict[str, Device]) -> None:
    assert (shown["nvme0n1"].wwn, shown["nvme0n1"].serial) == ("eui.0025385b21404321", "S5GXNF0R")
    assert shown["nvme0n1"].links == ("/dev/disk/by-id/nvme-Samsung_980",)
    assert (shown["sda"].wwn, shown["sda"].model, shown["sda"].rotational) == ("naa.5000c500a1b2c3d4", "ST4000", True)
    assert (shown["sdb"].wwn, shown["sdb"].serial, shown["sdb"].identity) == ("", "QM0001", "QM0001")
    assert shown["dm-0"].wwn == "36001405aaaaaaaaaaaaaaaaaaaaaaaaa"
    assert (shown["vdb"].serial, shown["rbd0"].serial) == ("V1", "FROM-UDEV")


def test_kinds_are_told_apart(shown: dict[str, Device]) -> None:
    kinds = [shown[name].kind for name in ("sda", "sr0", "dm-0", "dm-1", "rbd0", "zram0")]
    assert kinds == [Kind.DISK, Kind.OPTICAL, Kind.MULTIPATH, Kind.MAPPED, Kind.NETWORK, Kind.MEMORY]


def test_a_disk_is_in_use_by_what_is_built_on_its_partitions(shown: dict[str, Device]) -> None:
    assert shown["sda"].partitions == ("sda1", "sda2", "sda10")
    assert shown["sda"].holders == ("dm-1",)
    assert judge(shown["sda"], Surroundings()).reason == Reason.SYSTEM_DISK
    assert shown["nvme0n1"].mounts == ("/data",), "btrfs is found by its source"
    assert shown["zram0"].swap
    assert shown["nvme0n1"].size == 1953525168 * 512


async def test_a_disk_that_cannot_be_read_is_not_taken_for_a_blank_one(tmp_path: Path) -> None:
    devices = HostDevices(commands, HostMounts(commands), roots=hardware(tmp_path))
    found = {device.name: device for device in await devices.discover()}
    assert "cannot read /dev/sdb: dd exited with 1" in found["sdb"].unreadable
    assert not found["rbd0"].unreadable, "what is no disk is not even looked at"


def test_what_blkid_says_is_read_with_its_escapes() -> None:
    text = 'DEVNAME=/dev/loop0\nLABEL=a\\ b\\"c\nUUID=u1\nTYPE=ext4\nUSAGE=filesystem\nPTTYPE=dos\nPTUUID=p1\n'
    expected = (Signature("ext4", "filesystem", "u1", 'a b"c'), Signature("dos", "partition table", "p1"))
    assert parse_export(text) == expected
    assert parse_export("") == ()


@pytest.mark.netns
async def test_a_loop_device_is_read_for_real(tmp_path: Path) -> None:
    devices = HostDevices(commands, HostMounts(commands))
    with loop_device(tmp_path, size=64 << 20) as path:
        device = await devices.inspect(path)
        assert device is not None
        assert (device.path, device.kind, device.size) == (path, Kind.LOOP, 64 << 20)
        assert path not in [each.path for each in await devices.discover()], "loop devices are not in the inventory"
    assert await devices.inspect(path) is None
    assert await devices.inspect("/dev/quartermaster-nothing") is None
    assert await devices.inspect("/etc/passwd") is None


@pytest.mark.netns
async def test_what_is_on_a_device_is_found_by_blkid_and_what_is_hidden_by_wipefs(tmp_path: Path) -> None:
    with loop_device(tmp_path, size=64 << 20) as path:
        assert await everything_found(commands, path) == ()
        subprocess.run(["mkfs.ext4", "-q", "-L", "data", path], check=True)
        (found,) = await probe(commands, path)
        assert (found.type, found.usage, found.label) == ("ext4", "filesystem", "data")
        assert await everything_found(commands, path) == (found,)
        write_partition_table(path)
        assert {signature.type for signature in await everything_found(commands, path)} >= {"dos"}
    with pytest.raises(HostError, match="cannot read /dev/quartermaster-nothing"):
        await probe(commands, "/dev/quartermaster-nothing")


@pytest.mark.netns
async def test_a_virtual_host_has_only_the_disks_of_its_device_root(tmp_path: Path) -> None:
    root = tmp_path / "h1"
    devices = HostDevices(commands, HostMounts(commands), device_root=root)
    assert await devices.discover() == ()
    with loop_device(tmp_path, size=1100 << 20) as loop:
        link = add_disk(root, "vdb", loop, StandIn(serial="H1-0001", model="lab", rotational=True))
        (root / "vdz").symlink_to("/dev/quartermaster-pulled")
        (device,) = await devices.discover()
        assert (device.path, device.serial, device.model) == (str(link), "H1-0001", "lab")
        assert judge(device, Surroundings()).usable
        assert await devices.inspect(str(link)) == device
        assert await devices.inspect(loop) is None, "seen from every virtual host, owned by none"
        pull_disk(root, "vdb")
        assert await devices.discover() == ()


async def test_a_stand_in_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    hardware_roots = hardware(tmp_path)
    add_disk(tmp_path / "h1", "vdb", "/dev/vdb", StandIn())
    for content, words in ((b"{", "it is not JSON"), (b'{"serail": "x"}', "unknown field `serail`")):
        (tmp_path / "h1/vdb.json").write_bytes(content)
        devices = HostDevices(commands, HostMounts(commands), roots=hardware_roots, device_root=tmp_path / "h1")
        with pytest.raises(HostError, match=f"vdb.json: .*{words}"):
            await devices.discover()
