"""Formatting: real file systems on loop devices that stand for the disks of a virtual host."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.host.commands import Command, HostCommands, Result
from quartermaster.host.devices import Device, HostDevices, Signature, StandIn, add_disk, pull_disk
from quartermaster.host.devices.model import UNRECOGNISED
from quartermaster.host.devices.signatures import everything_found, probe
from quartermaster.host.formatting import BEGUN_LABEL, FileSystem, Format, HostFormatting
from quartermaster.host.mounts import HostMounts
from quartermaster.support.errors import DeviceRefusedError, HostError, InvalidError
from tests.host.namespaces import Namespace, loop_device, write_partition_table

UUID = "0b7a7a1e-7c53-4a5c-9f1f-0d2f5c3b8a11"
OTHER = "0b7a7a1e-7c53-4a5c-9f1f-0d2f5c3b8a22"
XFS = Format(FileSystem.XFS, UUID, "qm-brick-1")
EXT4 = Format(FileSystem.EXT4, UUID, "qm-brick-1")

pytestmark = pytest.mark.netns


class Recording:
    """Real commands, written down; `stop_after` breaks off behind the first command of that name, as a crash does."""

    def __init__(self, stop_after: str = "") -> None:
        self._inner = HostCommands()
        self._stop_after = stop_after
        self.changing: list[str] = []

    async def run(self, command: Command) -> Result:
        result = await self._inner.run(command)
        if command.changes:
            self.changing.append(command.argv[0])
        if command.argv[0] == self._stop_after:
            raise HostError("crashed")
        return result


class Lab:
    def __init__(self, root: Path, loop: str) -> None:
        self.root = root
        self.loop = loop
        self.path = str(add_disk(root, "vdb", loop, StandIn(serial="S1", wwn="naa.5000c500a1b2c3d4")))
        self.wiped: list[tuple[str, tuple[str, ...]]] = []

    def formatting(self, commands: Recording | None = None) -> HostFormatting:
        used = commands or Recording()
        return HostFormatting(used, HostDevices(used, HostMounts(used), device_root=self.root))

    async def record(self, device: Device, found: tuple[Signature, ...]) -> None:
        self.wiped.append((device.serial, tuple(signature.type for signature in found)))

    async def on_it(self) -> list[tuple[str, str, str]]:
        found = await everything_found(HostCommands(), self.path)
        return [(signature.type, signature.uuid, signature.label) for signature in found]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with loop_device(tmp_path) as loop:
        yield Lab(tmp_path / "disks", loop)


async def refusal(lab: Lab, wanted: Format = EXT4, identity: str = "naa.5000c500a1b2c3d4") -> DeviceRefusedError:
    commands = Recording()
    with pytest.raises(DeviceRefusedError) as caught:
        await lab.formatting(commands).format(lab.path, wanted, identity=identity)
    assert commands.changing == [], "nothing was touched"
    return caught.value


@pytest.mark.parametrize("file_system", list(FileSystem))
async def test_a_blank_disk_is_formatted_with_our_identity_and_a_second_time_nothing_happens(
    lab: Lab, namespace: Namespace, file_system: FileSystem, tmp_path: Path
) -> None:
    wanted, commands = Format(file_system, UUID, "qm-brick-1"), Recording()
    assert await lab.formatting().format(lab.path, wanted, identity="naa.5000c500a1b2c3d4") is True
    assert await lab.on_it() == [(file_system, UUID, "qm-brick-1")]
    assert await lab.formatting(commands).format(lab.path, wanted, identity="naa.5000c500a1b2c3d4") is False
    assert commands.changing == []
    await namespace.mounts.mount(lab.path, str(tmp_path / "m"), type=file_system)
    await namespace.mounts.unmount(str(tmp_path / "m"))


@pytest.mark.parametrize("wanted", [XFS, EXT4])
async def test_an_interrupted_format_is_begun_anew(lab: Lab, wanted: Format) -> None:
    crashing = Recording(stop_after=f"mkfs.{wanted.file_system}")
    with pytest.raises(HostError, match="crashed"):
        await lab.formatting(crashing).format(lab.path, wanted, identity="naa.5000c500a1b2c3d4")
    assert await lab.on_it() == [(wanted.file_system, UUID, BEGUN_LABEL)]
    assert await lab.formatting().format(lab.path, wanted, identity="naa.5000c500a1b2c3d4") is True
    assert await lab.on_it() == [(wanted.file_system, UUID, "qm-brick-1")]


async def test_what_somebody_else_began_is_not_touched(lab: Lab) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-U", OTHER, "-L", BEGUN_LABEL, lab.loop], check=True)
    assert (await refusal(lab)).code == "OtherCluster"


@pytest.mark.parametrize("before_the_end", [None, 5000], ids=["at its beginning", "at its end"])
async def test_data_that_nobody_recognises_are_not_formatted_but_by_consent(
    lab: Lab, before_the_end: int | None
) -> None:
    with open(lab.loop, "r+b") as disk:
        disk.seek(-before_the_end if before_the_end else 0, os.SEEK_END if before_the_end else os.SEEK_SET)
        disk.write(b"ORDER;1;customer record\n" * 100)
    assert await lab.on_it() == []
    error = await refusal(lab)
    assert error.code == "ForeignData"
    assert "is not blank: nobody recognises what is on it, but its first or last MiB is not zero" in str(error)
    (found,) = await lab.formatting()._devices.discover()
    assert found.signatures == (UNRECOGNISED,)
    assert await lab.formatting().wipe(lab.path, consent="S1", record=lab.record) is True
    assert lab.wiped == [("S1", ("unrecognised data",))]
    assert await lab.formatting().format(lab.path, EXT4, identity="naa.5000c500a1b2c3d4") is True


@pytest.mark.parametrize("file_system", list(FileSystem))
async def test_what_lies_where_a_file_system_writes_nothing_stays(lab: Lab, file_system: FileSystem) -> None:
    """It is not looked for, which would take hours, and not discarded either."""
    wanted, place = Format(file_system, UUID, "qm-brick-1"), 101 << 20
    with open(lab.loop, "r+b") as disk:
        disk.seek(place)
        disk.write(b"in the midst")
    assert await lab.formatting().format(lab.path, wanted, identity="naa.5000c500a1b2c3d4") is True
    with open(lab.loop, "rb") as disk:
        disk.seek(place)
        assert disk.read(12) == b"in the midst"


@pytest.mark.parametrize("file_system", list(FileSystem))
async def test_a_disk_that_was_wiped_by_consent_is_blank(lab: Lab, file_system: FileSystem) -> None:
    subprocess.run([f"mkfs.{file_system}", "-q", lab.loop], check=True)
    assert await lab.formatting().wipe(lab.path, consent="S1", record=lab.record) is True
    assert await lab.formatting().format(lab.path, EXT4, identity="naa.5000c500a1b2c3d4") is True


async def test_a_format_that_was_cut_off_before_anything_is_recognised_is_begun_anew(lab: Lab, tmp_path: Path) -> None:
    class Cut(Recording):
        async def run(self, command: Command) -> Result:
            if command.argv[0] == "mkfs.ext4":
                Path(lab.loop).write_bytes(b"\1" * 8192)
                raise asyncio.CancelledError
            return await super().run(command)

    note = tmp_path / "state" / "making"
    with pytest.raises(asyncio.CancelledError):
        await lab.formatting(Cut()).format(lab.path, EXT4, identity="naa.5000c500a1b2c3d4", note=note)
    assert (await refusal(lab)).code == "ForeignData"
    assert await lab.formatting().format(lab.path, EXT4, identity="naa.5000c500a1b2c3d4", note=note) is True
    assert not note.exists()


async def test_a_disk_without_an_identity_is_known_by_no_note(tmp_path: Path) -> None:
    class Cut(Recording):
        async def run(self, command: Command) -> Result:
            if command.argv[0] == "mkfs.ext4":
                raise asyncio.CancelledError
            return await super().run(command)

    with loop_device(tmp_path) as loop:
        root, note = tmp_path / "disks", tmp_path / "making"
        path = str(add_disk(root, "vdb", loop, StandIn()))
        used = Cut()
        formatting = HostFormatting(used, HostDevices(used, HostMounts(used), device_root=root))
        with pytest.raises(asyncio.CancelledError):
            await formatting.format(path, EXT4, identity="", note=note)
        assert not note.exists()
        note.write_bytes(path.encode())  # by whomever
        Path(loop).write_bytes(b"another disk at this path")
        with pytest.raises(DeviceRefusedError, match="is not blank"):
            await formatting.format(path, EXT4, identity="", note=note)


async def test_a_note_of_a_format_that_wrote_nothing_opens_nothing(lab: Lab, tmp_path: Path) -> None:
    class Missing(Recording):
        async def run(self, command: Command) -> Result:
            if command.argv[0] == "mkfs.ext4":
                raise HostError("not installed")
            return await super().run(command)

    note = tmp_path / "making"
    with pytest.raises(HostError, match="not installed"):
        await lab.formatting(Missing()).format(lab.path, EXT4, identity="naa.5000c500a1b2c3d4", note=note)
    assert not note.exists()


async def test_a_foreign_file_system_is_not_formatted(lab: Lab) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-L", "photos", lab.loop], check=True)
    error = await refusal(lab)
    assert error.code == "ForeignData"
    assert 'holds data that is not ours (ext4 named "photos")' in str(error)


async def test_a_partition_table_is_not_formatted_over(lab: Lab) -> None:
    write_partition_table(lab.loop)
    assert (await refusal(lab)).code == "Partitioned"


async def test_a_signature_hidden_behind_another_is_seen(lab: Lab) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-U", UUID, "-L", "qm-brick-1", lab.loop], check=True)
    write_partition_table(lab.loop)
    assert (await refusal(lab)).code == "Partitioned"


async def test_another_disk_at_the_same_path_is_not_formatted(lab: Lab) -> None:
    error = await refusal(lab, identity="S-other")
    assert error.code == "OtherDevice"
    assert 'it is another disk now: "naa.5000c500a1b2c3d4" and not "S-other"' in str(error)


async def test_a_disk_that_is_gone_or_too_small_or_read_only_is_refused(lab: Lab, tmp_path: Path) -> None:
    with loop_device(tmp_path, size=200 << 20, read_only=True) as loop:
        small = Lab(tmp_path / "small", loop)
        assert (await refusal(small, XFS)).code == "ReadOnly"
    with loop_device(tmp_path, size=200 << 20) as loop:
        pull_disk(small.root, "vdb")
        small = Lab(tmp_path / "small", loop)
        assert (await refusal(small, XFS)).code == "TooSmall"
    assert (await refusal(small, XFS)).code == "NotFound"


async def test_a_disk_that_somebody_has_open_for_himself_is_refused(lab: Lab) -> None:
    holder = os.open(lab.loop, os.O_RDONLY | os.O_EXCL)
    try:
        assert (await refusal(lab)).code == "Busy"
    finally:
        os.close(holder)


async def test_a_disk_mounted_where_nobody_sees_it_is_refused(lab: Lab, namespace: Namespace, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", lab.loop], check=True)
    await namespace.mounts.mount(lab.loop, str(tmp_path / "m"), type="ext4")
    with pytest.raises(DeviceRefusedError) as caught:
        await lab.formatting().wipe(lab.path, consent="S1", record=lab.record)
    assert caught.value.code == "Busy"
    assert lab.wiped == []
    await namespace.mounts.unmount(str(tmp_path / "m"))


@pytest.mark.parametrize("consent", ["S1", "0x5000c500a1b2c3d4"])
async def test_a_disk_is_wiped_with_named_consent_recorded_before_and_once_is_enough(lab: Lab, consent: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", lab.loop], check=True)
    assert await lab.formatting().wipe(lab.path, consent=consent, record=lab.record) is True
    assert lab.wiped == [("S1", ("ext4",))]
    assert await lab.on_it() == []
    assert await lab.formatting().wipe(lab.path, consent=consent, record=lab.record) is False
    assert len(lab.wiped) == 1


@pytest.mark.parametrize("consent", ["", "S2", "/dev/vdb", "vdb"])
async def test_without_the_right_name_nothing_is_wiped(lab: Lab, consent: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", lab.loop], check=True)
    with pytest.raises(DeviceRefusedError, match=f'"{consent}" is not its serial number or WWN') as caught:
        await lab.formatting().wipe(lab.path, consent=consent, record=lab.record)
    assert caught.value.code == "NoConsent"
    assert lab.wiped == []
    assert [found[0] for found in await lab.on_it()] == ["ext4"]


async def test_consent_that_names_two_disks_is_none(lab: Lab, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", lab.loop], check=True)
    with loop_device(tmp_path, size=1 << 20) as other:
        add_disk(lab.root, "vdc", other, StandIn(serial="S1"))
        with pytest.raises(DeviceRefusedError, match=r'"S1" names .*/vdc too') as caught:
            await lab.formatting().wipe(lab.path, consent="S1", record=lab.record)
    assert caught.value.code == "AmbiguousConsent"


async def test_nothing_is_wiped_when_it_cannot_be_recorded_or_the_disk_was_swapped_meanwhile(lab: Lab) -> None:
    subprocess.run(["mkfs.ext4", "-q", lab.loop], check=True)

    async def fail(device: Device, found: tuple[Signature, ...]) -> None:
        raise HostError("store down")

    async def swap(device: Device, found: tuple[Signature, ...]) -> None:
        pull_disk(lab.root, "vdb")
        add_disk(lab.root, "vdb", lab.loop, StandIn(serial="S9"))

    for record, words in ((fail, "store down"), (swap, 'its identity is "S9"')):
        with pytest.raises(HostError, match=words):
            await lab.formatting().wipe(lab.path, consent="S1", record=record)
    assert (await probe(HostCommands(), lab.loop))[0].type == "ext4"


@pytest.mark.parametrize("label", ["brick", "qm-new", "qm-a-label-too-long"])
def test_a_label_that_does_not_carry_our_identity_is_refused(label: str) -> None:
    with pytest.raises(InvalidError, match="cannot use the label"):
        Format(FileSystem.XFS, UUID, label)
