"""Modelled hosts: machines whose disks, mounts and directories stay while agents come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quartermaster.host import Facts
from quartermaster.host.devices.model import Device, Signature
from quartermaster.host.fake import FakeMachine
from quartermaster.host.fake.machine import ROOT
from quartermaster.host.mountinfo import Mount
from quartermaster.testing.simulation import record

from .invariants import Witness

GIB = 1 << 30
# A disk of the host's own, with a directory that its administrator may offer; it may fail to be mounted.
OWN_DISK, OFFERED = "/dev/sdb", "/srv/volumes"
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


async def gather_facts() -> Facts:
    """They do not change."""
    return FACTS


class _Mounts(list[Mount]):
    def __init__(self, machine: WitnessedMachine, mounts: list[Mount]) -> None:
        super().__init__(mounts)
        self._machine = machine

    def append(self, mount: Mount) -> None:
        device = next((one for one in self._machine.disks.values() if one.number == mount.number), None)
        if device is not None and mount.root == "/":
            self._machine.witness.mounted(self._machine.name, device)
        super().append(mount)


class _Directories(dict[tuple[str, str], None]):
    """(number of the file system, path), as `FakeMachine` has them."""

    def __init__(self, machine: WitnessedMachine) -> None:
        super().__init__()
        self._machine = machine

    def __setitem__(self, key: tuple[str, str], value: None) -> None:
        self._machine.witness.directory_made(self._machine.name, key[1])
        super().__setitem__(key, value)

    def __delitem__(self, key: tuple[str, str]) -> None:
        self._machine.witness.directory_removed(self._machine.name, key[1])
        super().__delitem__(key)


class WitnessedMachine(FakeMachine):
    """Tells the witness of whatever an agent does to its disks and directories."""

    def __init__(self, name: str, witness: Witness) -> None:
        super().__init__()
        self.name = name
        self.witness = witness
        self.mounts = _Mounts(self, self.mounts)
        self.directories = _Directories(self)
        self.pulled: list[tuple[Device, str]] = []
        self.places: dict[str, list[str]] = {}  # path → serial numbers of all disks that were ever there
        self._serials = 0

    def write(self, path: str, *signatures: Signature) -> None:
        self.witness.written(self.name, self.disks[path], signatures)
        super().write(path, *signatures)

    @property
    def storage(self) -> dict[str, Device]:
        """The disks that may become ours."""
        return {path: disk for path, disk in sorted(self.disks.items()) if path != OWN_DISK}

    def install(self) -> None:
        """Its own disk, with a file system on it and an empty directory to offer."""
        self.add_disk(OWN_DISK.removeprefix("/dev/"), serial=f"{self.name}-own", size=100 * GIB)
        super().write(OWN_DISK, Signature("ext4", "filesystem", f"own-{self.name}", "srv"))
        self.mount_own()
        self.directories[self.disks[OWN_DISK].number, OFFERED] = None
        self.directories[ROOT.number, OFFERED] = None  # the bare place that it is mounted on

    @property
    def is_offered(self) -> bool:
        """Whether its directory was taken for volumes, and marked as such."""
        return any(path.startswith(f"{OFFERED}/") for number, path in self.directories if number != ROOT.number)

    def is_hidden(self, number: str, path: str) -> bool:
        """Whether the directory is one below what is mounted there now."""
        own = self.disks[OWN_DISK].number
        mounted = any(mount.number == own for mount in self.mounts)
        return path.startswith(f"{OFFERED}/") and mounted and number != own

    def is_remembered(self, path: str) -> bool:
        """Whether the directory is on a disk that nobody has mounted since, and goes when somebody does."""
        base = Path(path).parent
        agents = next((one.parent.parent for one in base.parents if one.name == "mounts"), base)
        remembered = agents / "local-volume" / "dropped" / f"{Path(path).name}@{base.name}"
        return remembered.is_symlink() and all(mount.target != str(base) for mount in self.mounts)

    def holds_volume(self, disk: Device) -> bool:
        return any(number == disk.number and "/pvc-" in path for number, path in self.directories)

    def mount_own(self) -> None:
        own = self.disks[OWN_DISK]
        if all(mount.number != own.number for mount in self.mounts):
            mount = Mount(2, 1, own.number, "/", OFFERED, ("rw",), (), "ext4", OWN_DISK, ("rw",))
            list.append(self.mounts, mount)
            record("hardware", self.name, "mounted", OFFERED)

    def unmount_own(self) -> None:
        own = self.disks[OWN_DISK]
        self.mounts[:] = [mount for mount in self.mounts if mount.number != own.number]
        record("hardware", self.name, "unmounted", OFFERED)

    def plug(self, name: str) -> Device:
        """A new, blank disk."""
        self._serials += 1
        path = self.add_disk(name, serial=f"{self.name}-disk{self._serials}", size=10 * GIB)
        self._remember(path)
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
        """All that was pulled, at its own path or, where that is taken, at another; and what is its own is mounted."""
        self.mount_own()
        for device, path in self.pulled:
            place = path if path not in self.disks else next(one for one in free_paths() if one not in self.disks)
            self.put_disk(device, place)
            self._remember(place)
            record("hardware", self.name, "put back", place, device.serial)
        self.pulled.clear()

    def _remember(self, path: str) -> None:
        self.places.setdefault(path, []).append(self.disks[path].serial)

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
