"""Modelled hosts: machines whose disks, mounts and directories stay while agents come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quartermaster.host import Facts
from quartermaster.host.devices.model import Device, Signature
from quartermaster.host.fake import FakeMachine
from quartermaster.host.mountinfo import Mount
from quartermaster.testing.simulation import record

from .invariants import Witness

GIB = 1 << 30
FACTS = Facts(
    name="modelled",
    addresses=("10.0.0.1",),
    boot="1",
    kernel="6.1",
    architecture="x86_64",
    distribution="Modelled Linux",
    memory=8 * GIB,
    cores=4,
    root=True,
    systemd=False,
    tools={},
)


class _Mounts(list[Mount]):
    def __init__(self, machine: WitnessedMachine, mounts: list[Mount]) -> None:
        super().__init__(mounts)
        self._machine = machine

    def append(self, mount: Mount) -> None:
        device = next((one for one in self._machine.disks.values() if one.number == mount.number), None)
        if device is not None and mount.root == "/":
            self._machine.witness.mounted(self._machine.name, device)
        super().append(mount)


class WitnessedMachine(FakeMachine):
    """Tells the witness of whatever an agent does to its disks."""

    def __init__(self, name: str, witness: Witness) -> None:
        super().__init__()
        self.name = name
        self.witness = witness
        self.mounts = _Mounts(self, self.mounts)
        self.pulled: list[tuple[Device, str]] = []
        self._serials = 0

    def write(self, path: str, *signatures: Signature) -> None:
        self.witness.written(self.name, self.disks[path], signatures)
        super().write(path, *signatures)

    def plug(self, name: str) -> Device:
        """A new, blank disk."""
        self._serials += 1
        path = self.add_disk(name, serial=f"{self.name}-disk{self._serials}", size=10 * GIB)
        record("hardware", self.name, "plugged", path, self.disks[path].serial)
        return self.disks[path]

    def scribble(self, path: str) -> None:
        """Somebody else puts data on a disk."""
        found = Signature("ext4", "filesystem", f"foreign-{self.name}-{self.next_number()}", "photos")
        record("hardware", self.name, "scribbled", path, found.uuid)
        self.disks[path] = replace(self.disks[path], signatures=(found,))

    def pull(self, path: str) -> None:
        device = self.pull_disk(path)
        self.mounts[:] = [mount for mount in self.mounts if mount.number != device.number]
        self.pulled.append((device, path))
        record("hardware", self.name, "pulled", path, device.serial)

    def put_back(self) -> None:
        """All that was pulled, at its own path or, where that is taken, at another."""
        for device, path in self.pulled:
            place = path if path not in self.disks else next(one for one in free_paths() if one not in self.disks)
            self.put_disk(device, place)
            record("hardware", self.name, "put back", place, device.serial)
        self.pulled.clear()

    def acts(self) -> dict[str, Any]:
        """What a second run must leave as it is."""
        return {
            "disks": dict(self.disks),
            "mounts": [(mount.source, mount.target) for mount in self.mounts],
            "directories": list(self.directories),
            "processes": [(name, one.pid) for name, one in self.processes.items()],
        }


def free_paths() -> Iterator[str]:
    return (f"/dev/vd{letter}" for letter in "bcdefghijklmnop")


def directory_of(base: Path, host: str) -> Path:
    return base / host
