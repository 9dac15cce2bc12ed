"""A machine that is only modelled: disks, mounts and daemons that outlive the agent, and what may happen to them."""

from __future__ import annotations

import msgspec

from quartermaster.host.daemons.base import Daemon
from quartermaster.host.devices.model import Device, Kind, Signature
from quartermaster.host.mountinfo import Mount
from quartermaster.host.mounts import MountHealth
from quartermaster.host.programs import Program

ROOT = Mount(1, 0, "8:1", "/", "/", ("rw",), (), "ext4", "/dev/sda1", ("rw",))


class FakeProcess(msgspec.Struct):
    daemon: Daemon
    pid: int
    exit_code: int | None = None
    lives: bool = True
    log: str = ""


class FakeMachine:
    """The state that all fakes of one host share. Tests change it through the methods that say what happened."""

    def __init__(self) -> None:
        self.disks: dict[str, Device] = {}
        self.mounts: list[Mount] = [ROOT]
        self.health: dict[str, MountHealth] = {}  # of mounts that are not well
        self.protected: dict[str, None] = {}  # where nothing can be written unless something is mounted there
        self.processes: dict[str, FakeProcess] = {}
        self.programs: list[Program] = []  # that no record is kept of
        self.missing_tools: set[str] = set()
        self.directories: dict[tuple[str, str], None] = {}  # (number of the file system, path)
        self.files: dict[tuple[str, str], bytes] = {}  # the same, with what is in them
        self.attributes: dict[tuple[str, str], dict[str, bytes]] = {}  # the same, with their extended attributes
        self.links: set[tuple[str, str]] = set()  # the same, of symbolic links
        self.used: dict[str, int] = {}  # bytes that are taken, by number of the file system
        self._number = 0

    def add_disk(
        self, name: str, *, size: int = 10 << 30, serial: str = "", wwn: str = "", rotational: bool = False
    ) -> str:
        """The path of the new disk."""
        path = f"/dev/{name}"
        number = f"253:{self.next_number()}"
        self.disks[path] = Device(path, name, number, Kind.DISK, size, wwn, serial, rotational=rotational)
        return path

    def pull_disk(self, path: str) -> Device:
        return self.disks.pop(path)

    def put_disk(self, device: Device, path: str) -> None:
        """The same disk, perhaps at another path."""
        self.disks[path] = msgspec.structs.replace(device, path=path, name=path.removeprefix("/dev/"))

    def write(self, path: str, *signatures: Signature) -> None:
        """What is on a disk from now on."""
        self.disks[path] = msgspec.structs.replace(self.disks[path], signatures=signatures)

    def kill(self, name: str, *, exit_code: int = -9) -> None:
        process = self.processes[name]
        process.lives = False
        process.exit_code = exit_code

    def reboot(self) -> None:
        """Disks and records stay, mounts and processes do not, and nobody knows how those ended."""
        self.mounts[:] = [ROOT]
        self.health.clear()
        self.programs.clear()
        for process in self.processes.values():
            process.lives = False

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def seen(self, path: str) -> Device | None:
        """A disk with where it is mounted."""
        device = self.disks.get(path)
        if device is None:
            return None
        targets = tuple(mount.target for mount in self.mounts if mount.number == device.number)
        return msgspec.structs.replace(device, mounts=targets)
