"""All devices of this host, each with everything that a verdict needs: from sysfs, and by probing what is on it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol

import msgspec

from quartermaster.host.commands import Commands
from quartermaster.host.devices import roots as device_roots
from quartermaster.host.devices.model import Device, Kind
from quartermaster.host.devices.signatures import probe, unrecognised
from quartermaster.host.devices.sysfs import Roots, names, read_device, read_index
from quartermaster.host.mounts import Mounts
from quartermaster.support.errors import HostError
from quartermaster.support.tasks import TaskGroup

_PROBED = (Kind.DISK, Kind.MULTIPATH, Kind.PARTITION)
_NOISE = (Kind.LOOP, Kind.MEMORY, Kind.OPTICAL)  # a host may have dozens that nobody would call a disk
_PROBES_AT_ONCE = 4


class Devices(Protocol):
    """Looks only; nothing here changes the host."""

    async def discover(self) -> tuple[Device, ...]:
        """Every whole disk, also those that must not be used: `judge` says why."""
        ...

    async def inspect(self, path: str) -> Device | None:
        """One device by any of its paths, as it is now; None where there is none."""
        ...


class HostDevices:
    """With a `device_root` only the disks of that virtual host exist."""

    def __init__(
        self,
        commands: Commands,
        mounts: Mounts,
        *,
        roots: Roots = Roots(),  # noqa: B008 - frozen
        device_root: Path | None = None,
    ) -> None:
        self._commands = commands
        self._mounts = mounts
        self._roots = roots
        self._device_root = device_root

    async def discover(self) -> tuple[Device, ...]:
        found = self._read_all()
        # A disk that does not answer is found unreadable after its deadline, and does not hold up the others.
        turn = asyncio.Semaphore(_PROBES_AT_ONCE)
        async with TaskGroup() as group:
            tasks = [group.start(self._probed(device, turn)) for device in found]
        return tuple(task.result() for task in tasks)

    async def inspect(self, path: str) -> Device | None:
        device = self._read_one(path)
        return None if device is None else await self._probed(device, asyncio.Semaphore(1))

    def _read_all(self) -> list[Device]:
        index = read_index(self._roots, self._mounts.table())
        root = self._device_root
        if root is None:
            every = [read_device(self._roots, name, index) for name in names(self._roots)]
        else:
            every = [device_roots.read_stand_in(self._roots, root, name, index) for name in device_roots.names(root)]
        found = [device for device in every if device is not None]
        return [device for device in found if device.stand_in or device.kind not in _NOISE]

    def _read_one(self, path: str) -> Device | None:
        index = read_index(self._roots, self._mounts.table())
        if self._device_root is not None:
            directory, name = os.path.split(path)
            if directory != str(self._device_root):
                return None
            return device_roots.read_stand_in(self._roots, self._device_root, name, index)
        dev = self._roots.dev
        resolved = Path(os.path.realpath(dev / Path(path).relative_to("/dev"))) if path.startswith("/dev/") else None
        if resolved is None or not resolved.is_relative_to(dev):
            return None
        device = read_device(self._roots, str(resolved.relative_to(dev)).replace("/", "!"), index)
        return None if device is None else msgspec.structs.replace(device, path=path)

    async def _probed(self, device: Device, turn: asyncio.Semaphore) -> Device:
        if device.kind not in _PROBED and not device.stand_in:
            return device
        async with turn:
            try:
                found = await probe(self._commands, device.path)
                signatures = found or await unrecognised(self._commands, device.path, device.size)
            except HostError as error:
                return msgspec.structs.replace(device, unreadable=error.message)
        return msgspec.structs.replace(device, signatures=signatures)
