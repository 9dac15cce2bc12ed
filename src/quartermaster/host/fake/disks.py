"""Devices and formatting on a modelled machine, by the same rules as on a real one."""

from __future__ import annotations

from pathlib import Path

from quartermaster.host.devices.model import Device, Signature
from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import FakeMachine
from quartermaster.host.formatting import (
    BEGUN_LABEL,
    Format,
    Record,
    Refusal,
    ours,
    refuse_format,
    refuse_other_device,
    refuse_wipe,
    refused,
)


class FakeDevices:
    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()

    async def discover(self) -> tuple[Device, ...]:
        async with self._faults.step("discover devices"):
            found = [self._machine.seen(path) for path in sorted(self._machine.disks)]
        return tuple(device for device in found if device is not None)

    async def inspect(self, path: str) -> Device | None:
        async with self._faults.step(f"inspect {path}"):
            return self._machine.seen(path)


class FakeFormatting:
    """Each step that a crash can fall between on a real host is a call of its own for the faults."""

    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()
        self.made = 0
        self.wiped = 0

    async def format(self, path: str, wanted: Format, *, identity: str, note: Path | None = None) -> bool:  # noqa: ARG002 - what is begun here has its label at once
        device = self._existing(path, "format")
        refuse_other_device(device, identity)
        progress = ours(device.signatures, wanted)
        if progress == wanted.label:
            return False
        refuse_format(device, () if progress == BEGUN_LABEL else device.signatures, wanted)
        async with self._faults.step(f"make {wanted.file_system} on {path}"):
            self.made += 1
            self._machine.write(path, Signature(wanted.file_system, "filesystem", wanted.uuid, BEGUN_LABEL))
        async with self._faults.step(f"label {path}"):
            self._machine.write(path, Signature(wanted.file_system, "filesystem", wanted.uuid, wanted.label))
        return True

    async def wipe(self, path: str, *, consent: str, record: Record) -> bool:
        device = self._wipeable(path, consent)
        if not device.signatures:
            return False
        await record(device, device.signatures)
        self._wipeable(path, consent)
        async with self._faults.step(f"wipe {path}"):
            self.wiped += 1
            self._machine.write(path)
        return True

    def _existing(self, path: str, verb: str) -> Device:
        device = self._machine.seen(path)
        if device is None:
            raise refused(verb, path, Refusal.NOT_FOUND, "there is no such device on this host")
        return device

    def _wipeable(self, path: str, consent: str) -> Device:
        device = self._existing(path, "wipe")
        refuse_wipe(device, consent, tuple(self._machine.disks.values()))
        return device
