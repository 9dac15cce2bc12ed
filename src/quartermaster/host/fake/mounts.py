"""Mounts on a modelled machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from quartermaster.host.fake.faults import Faults
from quartermaster.host.fake.machine import ROOT, FakeMachine
from quartermaster.host.mountinfo import Mount, covering, mounted_at
from quartermaster.host.mounts import (
    MountHealth,
    MountState,
    Propagation,
    propagation_of,
    refuse_difference,
    refuse_other_bind,
)
from quartermaster.support.errors import HostError, MountBusyError


class FakeMounts:
    """`busy` holds the targets that somebody uses."""

    def __init__(self, machine: FakeMachine, faults: Faults | None = None) -> None:
        self._machine = machine
        self._faults = faults or Faults()
        self.busy: set[str] = set()

    def table(self) -> tuple[Mount, ...]:
        return tuple(self._machine.mounts)

    async def mount(
        self,
        source: str,
        target: str,
        *,
        type: str,
        options: Sequence[str] = (),
        protect: bool = False,
        timeout_s: float = 60.0,  # noqa: ARG002
    ) -> bool:
        number = self._number_of(source, type)
        present = mounted_at(self.table(), target)
        if present is not None:
            refuse_difference(present, source, type, options, number=number)
            return False
        async with self._faults.step(f"mount {source} on {target}"):
            number = number or f"0:{self._machine.next_number()}"
            self._add(source, target, type=type, options=tuple(options), number=number, root="/")
            if protect:
                self._machine.protected[target] = None
        return True

    async def bind(
        self, source: str, target: str, *, read_only: bool = False, propagation: Propagation | None = None
    ) -> bool:
        present = mounted_at(self.table(), target)
        options = ("ro",) if read_only else ("rw",)
        fields = {"shared": ("shared:1",), "slave": ("master:1",)}.get(str(propagation), ())
        if present is not None:
            refuse_other_bind(self.table(), present, source)
            same = present.read_only == read_only and propagation in (None, propagation_of(present))
            if same:
                return False
        async with self._faults.step(f"bind {source} to {target}"):
            if present is not None:
                self._machine.mounts.remove(present)
            below = covering(self.table(), source) or ROOT
            root = str(PurePosixPath(below.root) / PurePosixPath(source).relative_to(below.target))
            self._add(
                below.source,
                target,
                type=below.type,
                options=options,
                number=below.number,
                root=root,
                propagation=fields,
            )
        return True

    async def remount(self, target: str, *, options: Sequence[str]) -> None:
        present = mounted_at(self.table(), target)
        if present is None:
            raise HostError(f"cannot remount {target}: nothing is mounted there")
        async with self._faults.step(f"remount {target}"):
            place = self._machine.mounts.index(present)
            self._machine.mounts[place] = msgspec.structs.replace(present, options=tuple(options))

    async def unmount(
        self,
        target: str,
        *,
        lazy: bool = False,
        force: bool = False,
        remove: bool = False,
        timeout_s: float = 30.0,  # noqa: ARG002
    ) -> bool:
        present = mounted_at(self.table(), target)
        if present is None:
            return False
        if target in self.busy and not lazy and not force:
            raise MountBusyError(f"cannot unmount {target}: {present.source} is in use")
        async with self._faults.step(f"unmount {target}"):
            self._machine.mounts.remove(present)
            self._machine.health.pop(target, None)
            if remove:
                self._machine.protected.pop(target, None)
        return True

    async def health(self, target: str, *, timeout_s: float = 5.0) -> MountHealth:  # noqa: ARG002
        async with self._faults.step(f"look at {target}"):
            if mounted_at(self.table(), target) is None:
                return MountHealth(MountState.ABSENT)
            return self._machine.health.get(target, MountHealth(MountState.HEALTHY))

    def _number_of(self, source: str, type: str) -> str:
        if not source.startswith("/dev/"):
            return ""
        device = self._machine.disks.get(source)
        if device is None or [signature.type for signature in device.signatures] != [type]:
            raise HostError(f"cannot mount {source}: there is no {type} on it")
        return device.number

    def _add(
        self,
        source: str,
        target: str,
        *,
        type: str,
        options: tuple[str, ...],
        number: str,
        root: str,
        propagation: tuple[str, ...] = (),
    ) -> None:
        identity = self._machine.next_number()
        self._machine.mounts.append(
            Mount(identity, 1, number, root, target, options, propagation, type, source, ("rw",))
        )
