"""Making a file system, or taking one away, without ever costing anybody their data.

Before it acts, each looks again at the device itself: is it still the same disk (serial number or WWN), is it idle
(exclusive open), is it blank (blkid and wipefs agree, and its ends are zero)? Programs run without their force
options: mkfs.xfs and mkfs.btrfs then refuse on their own account too, mkfs.ext4 does so only where somebody can be
asked.

A file system carries our identity: a UUID that the caller chose and recorded, and a label that is set last. A device
with the UUID and the label of a beginning is one on which we were interrupted: nobody was ever given it, so it is begun
anew. Interrupted earlier, it carries something that nobody recognises: then the note tells that it was blank when we
began.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from quartermaster.host.commands import Command, Commands
from quartermaster.host.devices.discovery import Devices
from quartermaster.host.devices.judging import LABEL_PREFIX, Reason, Surroundings, judge
from quartermaster.host.devices.model import UNRECOGNISED, Device, Signature, named_by
from quartermaster.host.devices.signatures import BLANK_BYTES, ends_of, everything_found, probe, unrecognised
from quartermaster.host.files import remove, write_whole
from quartermaster.support.errors import DeviceRefusedError, HostError, InvalidError

BEGUN_LABEL = f"{LABEL_PREFIX}new"
_LONGEST_LABEL = 12  # of XFS, the shortest of them
_MAKING_TIMEOUT_S = 600.0


class FileSystem(StrEnum):
    XFS = "xfs"
    EXT4 = "ext4"
    BTRFS = "btrfs"


LEAST_SIZE = {FileSystem.XFS: 300 << 20, FileSystem.EXT4: 16 << 20, FileSystem.BTRFS: 128 << 20}


class Refusal(StrEnum):
    """Reasons beside those of a verdict (devices.Reason)."""

    NOT_FOUND = "NotFound"
    OTHER_DEVICE = "OtherDevice"
    BUSY = "Busy"
    NO_CONSENT = "NoConsent"
    AMBIGUOUS_CONSENT = "AmbiguousConsent"


class Format(msgspec.Struct, frozen=True):
    """A file system that carries our identity."""

    file_system: FileSystem
    uuid: str
    label: str

    def __post_init__(self) -> None:
        if not self.label.startswith(LABEL_PREFIX) or self.label == BEGUN_LABEL or len(self.label) > _LONGEST_LABEL:
            raise InvalidError(
                f'cannot use the label "{self.label}": it must begin with {LABEL_PREFIX}, '
                f"have at most {_LONGEST_LABEL} characters and not be {BEGUN_LABEL}"
            )


Record = Callable[[Device, tuple[Signature, ...]], Awaitable[None]]
"""Writes down for good what is about to be wiped, and with what on it."""


class Formatting(Protocol):
    """DeviceRefusedError when the device was not touched, with the reason as its `code`."""

    async def format(self, path: str, wanted: Format, *, identity: str, note: Path | None = None) -> bool:
        """Whether it was made now; False when it was there already. `identity` is the disk's hardware identity.

        `note` is a file that is there from before the first byte until the file system is. A disk without an identity
        gets none: by its path another one might be meant.
        """
        ...

    async def wipe(self, path: str, *, consent: str, record: Record) -> bool:
        """Take away what is on a device, with the consent of a person who named its serial number or WWN."""
        ...


class HostFormatting:
    def __init__(self, commands: Commands, devices: Devices) -> None:
        self._commands = commands
        self._devices = devices

    async def format(self, path: str, wanted: Format, *, identity: str, note: Path | None = None) -> bool:
        device = await self._inspect(path, "format")
        refuse_other_device(device, identity)
        note = note if identity else None
        found = await self._found(device)
        progress = ours(found, wanted)
        if progress == wanted.label:
            if note is not None:
                remove(note)
            return False
        begun = progress == BEGUN_LABEL or (found == (UNRECOGNISED,) and _says(note, device))
        refuse_format(device, () if begun else found, wanted)
        _refuse_busy(path, "format")
        if begun:
            await self._remove_signatures(device)
            refuse_format(device, await self._found(device), wanted)
        await self._make(device, wanted, note)
        await self._change(labelling(wanted, path), f"label {path}")
        if ours(await probe(self._commands, path), wanted) != wanted.label:
            raise HostError(f"cannot format {path}: {wanted.file_system} was made, but is not found there")
        if note is not None:
            remove(note)
        return True

    async def _make(self, device: Device, wanted: Format, note: Path | None) -> None:
        if note is not None:
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, device.hardware_identity.encode())
        try:
            await self._change(making(wanted, device.path), f"format {device.path}")
        except HostError:
            # It wrote nothing: what is there next time is not ours.
            if note is not None and not await self._found(device):
                remove(note)
            raise

    async def _found(self, device: Device) -> tuple[Signature, ...]:
        found = await everything_found(self._commands, device.path)
        return found or await unrecognised(self._commands, device.path, device.size)

    async def wipe(self, path: str, *, consent: str, record: Record) -> bool:
        device = await self._wipeable(path, consent)
        found = await self._found(device)
        if not found and not device.partitions:
            return False
        await record(device, found)
        # The record may have taken its time: look again.
        device = await self._wipeable(path, consent)
        await self._remove_signatures(device)
        left = await self._found(device)
        if left:
            raise HostError(f"cannot wipe {path}: {left[0].type} is still found on it")
        return True

    async def _inspect(self, path: str, verb: str) -> Device:
        device = await self._devices.inspect(path)
        if device is None:
            raise refused(verb, path, Refusal.NOT_FOUND, "there is no such device on this host")
        if device.unreadable:
            raise refused(verb, path, Reason.UNREADABLE, device.unreadable)
        return device

    async def _wipeable(self, path: str, consent: str) -> Device:
        device = await self._inspect(path, "wipe")
        refuse_wipe(device, consent, await self._devices.discover())
        _refuse_busy(path, "wipe")
        return device

    async def _remove_signatures(self, device: Device) -> None:
        """Of partitions, and last of their disk, whose ends are made blank too."""
        disk, partitions = device.path, [f"/dev/{name}" for name in device.partitions]
        if partitions:
            await self._change(("wipefs", "--all", "--quiet", *partitions), f"remove the signatures on {disk}")
        for place in ends_of(device.size):
            to = (f"of={disk}", f"seek={place}", "oflag=seek_bytes", "conv=fsync,notrunc", "status=none")
            blank = ("dd", "if=/dev/zero", f"bs={min(device.size, BLANK_BYTES)}", "count=1", *to)
            await self._change(blank, f"blank the {'end' if place else 'beginning'} of {disk}")
        await self._change(("wipefs", "--all", "--quiet", disk), f"remove the signatures of {disk}")

    async def _change(self, argv: tuple[str, ...], verb: str) -> None:
        await self._commands.run(Command(argv, verb=verb, timeout_s=_MAKING_TIMEOUT_S))


def _says(note: Path | None, device: Device) -> bool:
    """Whether the note is about this device."""
    try:
        return note is not None and note.read_bytes() == device.hardware_identity.encode()
    except FileNotFoundError:
        return False


def refused(verb: str, path: str, code: str, cause: str, *, hint: str = "") -> DeviceRefusedError:
    return DeviceRefusedError(f"cannot {verb} {path}: {cause}", code=code, hint=hint)


def refuse_other_device(device: Device, identity: str) -> None:
    if device.hardware_identity != identity:
        names = f'"{device.hardware_identity}" and not "{identity}"'
        raise refused("format", device.path, Refusal.OTHER_DEVICE, f"it is another disk now: {names}")


def refuse_format(device: Device, found: Sequence[Signature], wanted: Format) -> None:
    # Where something lies beside a file system of ours, that is the reason to name.
    foreign = tuple(signature for signature in found if signature.uuid != wanted.uuid) or tuple(found)
    seen = msgspec.structs.replace(device, signatures=foreign)
    verdict = judge(seen, Surroundings(minimum_size=LEAST_SIZE[wanted.file_system]))
    if not verdict.usable:
        raise refused("format", device.path, verdict.reason, verdict.message)


def refuse_wipe(device: Device, consent: str, every: Sequence[Device]) -> None:
    if not named_by(device, consent):
        known = f'its identity is "{device.hardware_identity}"' if device.hardware_identity else "it has no identity"
        raise refused(
            "wipe",
            device.path,
            Refusal.NO_CONSENT,
            f'"{consent}" is not its serial number or WWN; {known}',
            hint="consent names the disk and never a path, which may lead to another disk tomorrow",
        )
    others = [other.path for other in every if other.number != device.number and named_by(other, consent)]
    if others:
        raise refused("wipe", device.path, Refusal.AMBIGUOUS_CONSENT, f'"{consent}" names {", ".join(others)} too')
    # What is on it does not matter here; who uses it does.
    verdict = judge(msgspec.structs.replace(device, partitions=(), signatures=()), Surroundings(minimum_size=0))
    if not verdict.usable:
        raise refused("wipe", device.path, verdict.reason, verdict.message)


def ours(found: Sequence[Signature], wanted: Format) -> str:
    """How far the wanted file system is: its label, that of a beginning, or empty where it is not on the device."""
    if len(found) != 1 or found[0].type != wanted.file_system or found[0].uuid != wanted.uuid:
        return ""
    return found[0].label if found[0].label in (wanted.label, BEGUN_LABEL) else ""


def _refuse_busy(path: str, verb: str) -> None:
    """The kernel knows who has the device for himself, also one in another mount namespace, whom no table shows."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise refused(verb, path, Refusal.BUSY, f"it cannot be opened for us alone: {error.strerror}") from error


def making(wanted: Format, path: str) -> tuple[str, ...]:
    """Nothing is discarded: where a file system writes nothing, what was there stays, should it have been wanted."""
    match wanted.file_system:
        case FileSystem.XFS:
            return ("mkfs.xfs", "-q", "-K", "-L", BEGUN_LABEL, "-m", f"uuid={wanted.uuid}", path)
        case FileSystem.EXT4:
            return ("mkfs.ext4", "-q", "-E", "nodiscard", "-L", BEGUN_LABEL, "-U", wanted.uuid, path)
        case FileSystem.BTRFS:
            return ("mkfs.btrfs", "-q", "--nodiscard", "-L", BEGUN_LABEL, "-U", wanted.uuid, path)


def labelling(wanted: Format, path: str) -> tuple[str, ...]:
    match wanted.file_system:
        case FileSystem.XFS:
            return ("xfs_admin", "-L", wanted.label, path)
        case FileSystem.EXT4:
            return ("e2label", path, wanted.label)
        case FileSystem.BTRFS:
            return ("btrfs", "filesystem", "label", path, wanted.label)
