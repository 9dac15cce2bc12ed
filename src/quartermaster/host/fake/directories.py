"""Directories on a modelled machine: those on a disk are there only while it is mounted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TypeVar

from quartermaster.host.directories import Space, begun_removals, removing_path
from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import ROOT, FakeMachine
from quartermaster.host.mountinfo import covering, mounted_at
from quartermaster.support.errors import HostError

T = TypeVar("T")
_ROOT_SIZE = 100 << 30


class FakeDirectories:
    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()

    async def ensure(self, path: str, *, mode: int = 0o770) -> bool:  # noqa: ARG002
        if self._key(path) in self._machine.directories:
            return False
        async with self._faults.step(f"make {path}"):
            parent = str(PurePosixPath(path).parent)
            if parent in self._machine.protected and mounted_at(self._machine.mounts, parent) is None:
                raise HostError(f"cannot make the directory {path}: Operation not permitted")
            self._machine.directories[self._key(path)] = None
        return True

    async def remove(self, path: str) -> bool:
        """In two steps, as on a real host: whoever is killed in between leaves it with its other name."""
        doomed = removing_path(path)
        finished = self._key(doomed) in self._machine.directories and await self._remove(doomed)
        if self._key(path) not in self._machine.directories:
            return finished
        async with self._faults.step(f"begin to remove {path}"):
            self._rename(self._machine.directories, path, doomed)
            self._rename(self._machine.files, path, doomed)
            self._rename(self._machine.attributes, path, doomed)
        return await self._remove(doomed)

    async def finish_removals(self, path: str, prefix: str, *, having: str = "") -> bool:
        begun = await begun_removals(self, path, prefix, having=having)
        return any([await self._remove(f"{path}/{name}") for name in begun])

    async def _remove(self, doomed: str) -> bool:
        async with self._faults.step(f"remove {doomed}"):
            for kept in (self._machine.directories, self._machine.files, self._machine.attributes):
                for key in self._below(kept, doomed):
                    del kept[key]
        return True

    def _rename(self, kept: dict[tuple[str, str], T], path: str, new: str) -> None:
        for key in self._below(kept, path):
            kept[key[0], f"{new}{key[1].removeprefix(path)}"] = kept[key]
            del kept[
                key
            ]  # so whoever watches what is removed sees it, at the moment from which on it is meant to be gone

    def _below(self, kept: Iterable[tuple[str, str]], path: str) -> list[tuple[str, str]]:
        number, _ = self._key(path)
        return [key for key in kept if key[0] == number and (key[1] == path or key[1].startswith(f"{path}/"))]

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
            return Space(total, total - self._machine.used.get(number, 0), int(number.partition(":")[2]))

    async def entries(self, path: str) -> tuple[str, ...]:
        async with self._faults.step(f"list {path}"):
            number, _ = self._key(path)
            self._refuse_dead(number, f"list {path}")
            below = f"{path}/"
            known = (*self._machine.directories, *self._machine.files)
            inside = [name for of, name in known if of == number and name.startswith(below)]
            return tuple(sorted({name.removeprefix(below).split("/")[0] for name in inside}))

    async def read(self, path: str) -> bytes | None:
        async with self._faults.step(f"read {path}"):
            self._refuse_dead(self._key(path)[0], f"read {path}")
            return self._machine.files.get(self._key(path))

    async def attribute(self, path: str, name: str) -> bytes | None:
        async with self._faults.step(f"read {name} of {path}"):
            self._refuse_dead(self._key(path)[0], f"read {name} of {path}")
            there = self._key(path) in self._machine.directories
            return self._machine.attributes.get(self._key(path), {}).get(name) if there else None

    async def is_link(self, path: str) -> bool:
        async with self._faults.step(f"look at {path}"):
            return self._key(path) in self._machine.links

    async def write(self, path: str, data: bytes) -> bool:
        if self._machine.files.get(self._key(path)) == data:
            return False
        async with self._faults.step(f"write {path}"):
            self._refuse_dead(self._key(path)[0], f"write {path}")
            self._machine.files[self._key(path)] = data
        return True

    def _refuse_dead(self, number: str, verb: str) -> None:
        if number != ROOT.number and all(disk.number != number for disk in self._machine.disks.values()):
            raise HostError(f"cannot {verb}: Input/output error")

    def _key(self, path: str) -> tuple[str, str]:
        mount = covering(tuple(self._machine.mounts), path) or ROOT
        return mount.number, path
