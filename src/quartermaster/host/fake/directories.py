"""Directories on a modelled machine: those on a disk are there only while it is mounted."""

from __future__ import annotations

from quartermaster.host.directories import Space
from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import ROOT, FakeMachine
from quartermaster.host.mountinfo import covering
from quartermaster.support.errors import HostError

_ROOT_SIZE = 100 << 30


class FakeDirectories:
    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()

    async def ensure(self, path: str, *, mode: int = 0o770) -> bool:  # noqa: ARG002
        if self._key(path) in self._machine.directories:
            return False
        async with self._faults.step(f"make {path}"):
            self._machine.directories[self._key(path)] = None
        return True

    async def remove(self, path: str) -> bool:
        if self._key(path) not in self._machine.directories:
            return False
        async with self._faults.step(f"remove {path}"):
            number, _ = self._key(path)
            for key in list(self._machine.directories):
                if key[0] == number and (key[1] == path or key[1].startswith(f"{path}/")):
                    del self._machine.directories[key]
            for key in list(self._machine.files):
                if key[0] == number and key[1].startswith(f"{path}/"):
                    del self._machine.files[key]
        return True

    async def exists(self, path: str) -> bool:
        async with self._faults.step(f"look for {path}"):
            return self._key(path) in self._machine.directories

    async def space(self, path: str) -> Space:
        async with self._faults.step(f"measure {path}"):
            number, _ = self._key(path)
            disk = next((disk for disk in self._machine.disks.values() if disk.number == number), None)
            if disk is None and number != ROOT.number:
                raise HostError(f"cannot measure {path}: Input/output error")
            total = disk.size if disk is not None else _ROOT_SIZE
            return Space(total, total, int(number.partition(":")[2]))

    async def entries(self, path: str) -> tuple[str, ...]:
        async with self._faults.step(f"list {path}"):
            number, _ = self._key(path)
            self._refuse_dead(number, f"list {path}")
            below = f"{path}/"
            known = (*self._machine.directories, *self._machine.files)
            return tuple(sorted({key[1].removeprefix(below).split("/")[0] for key in known if self._is_in(key, path)}))

    async def read(self, path: str) -> bytes | None:
        async with self._faults.step(f"read {path}"):
            self._refuse_dead(self._key(path)[0], f"read {path}")
            return self._machine.files.get(self._key(path))

    async def write(self, path: str, data: bytes) -> bool:
        if self._machine.files.get(self._key(path)) == data:
            return False
        async with self._faults.step(f"write {path}"):
            self._refuse_dead(self._key(path)[0], f"write {path}")
            self._machine.files[self._key(path)] = data
        return True

    def _is_in(self, key: tuple[str, str], path: str) -> bool:
        return key[0] == self._key(path)[0] and key[1].startswith(f"{path}/")

    def _refuse_dead(self, number: str, verb: str) -> None:
        if number != ROOT.number and all(disk.number != number for disk in self._machine.disks.values()):
            raise HostError(f"cannot {verb}: Input/output error")

    def _key(self, path: str) -> tuple[str, str]:
        mount = covering(tuple(self._machine.mounts), path) or ROOT
        return mount.number, path
