"""Mounting that can be said twice: what is mounted already is left alone, what is different is an error that names it.

A dead server makes every look at its mount hang, so `health` looks through commands with a deadline. What a file system
says of itself comes from memory, also when its disk is gone: so one block is read from the disk itself.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

from quartermaster.host.commands import Command, Commands
from quartermaster.host.mountinfo import Mount, covering, mounted_at, parse_mountinfo
from quartermaster.host.targets import prepare_bind_target, prepare_directory, remove_target
from quartermaster.support.errors import (
    CommandDeadlineError,
    CommandError,
    HostError,
    MountBusyError,
    MountConflictError,
)

_DETACH_S = 10.0  # a lazy unmount is done when the mount is gone, whatever umount still waits for
# Options of the mount itself, which mountinfo repeats word by word. Those of a file system come back in other words or
# not at all, so they are not compared.
_COMPARED = ("nosuid", "nodev", "noexec", "noatime", "nodiratime")
# What newer kernels say of a file system that they have stopped: stat answers all the same.
_STOPPED = ("shutdown", "emergency_ro")
_CORRUPTED = {
    "Transport endpoint is not connected": "ENOTCONN",
    "Stale file handle": "ESTALE",
    "Input/output error": "EIO",
    "Permission denied": "EACCES",
    "Host is down": "EHOSTDOWN",
}


class Propagation(StrEnum):
    PRIVATE = "private"
    SHARED = "shared"
    SLAVE = "slave"


class MountState(StrEnum):
    HEALTHY = "healthy"
    ABSENT = "absent"  # nothing is mounted there
    CORRUPTED = "corrupted"  # its server or daemon is gone: unmount lazily and mount again
    UNRESPONSIVE = "unresponsive"  # no answer in time


class MountHealth(msgspec.Struct, frozen=True):
    state: MountState
    reason: str = ""  # where it is corrupted: the errno's name, or what the kernel has done with it

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason else str(self.state)


class Mounts(Protocol):
    """Each call that changes something answers whether it did."""

    def table(self) -> tuple[Mount, ...]: ...

    async def mount(
        self,
        source: str,
        target: str,
        *,
        type: str,
        options: Sequence[str] = (),
        protect: bool = False,
        timeout_s: float = 60.0,
    ) -> bool:
        """MountConflictError when something else is mounted there, or the mount would hide files."""
        ...

    async def bind(
        self, source: str, target: str, *, read_only: bool = False, propagation: Propagation | None = None
    ) -> bool: ...

    async def remount(self, target: str, *, options: Sequence[str]) -> None: ...

    async def unmount(
        self, target: str, *, lazy: bool = False, force: bool = False, remove: bool = False, timeout_s: float = 30.0
    ) -> bool:
        """Takes the topmost mount off; `remove` takes the target away as well. MountBusyError where it is in use."""
        ...

    async def health(self, target: str, *, timeout_s: float = 5.0) -> MountHealth: ...


class HostMounts:
    """`mountinfo` is another process's for a virtual host, to go with the prefix of its commands."""

    def __init__(self, commands: Commands, *, mountinfo: Path = Path("/proc/self/mountinfo")) -> None:
        self._commands = commands
        self._mountinfo = mountinfo

    def table(self) -> tuple[Mount, ...]:
        """Read until two readings agree: the kernel gives a long table in pieces while others mount."""
        before = ""
        for _ in range(4):
            text = self._mountinfo.read_text(errors="surrogateescape")
            if text == before:
                break
            before = text
        return parse_mountinfo(before)

    async def mount(
        self,
        source: str,
        target: str,
        *,
        type: str,
        options: Sequence[str] = (),
        protect: bool = False,
        timeout_s: float = 60.0,
    ) -> bool:
        table = self.table()
        target = canonical(table, target)
        present = mounted_at(table, target)
        if present is not None:
            refuse_difference(present, source, type, options, number=_device_number(source))
            return False
        prepare_directory(target, protect=protect)
        argv = ["mount", "-t", type, *_with_options(options), "--source", source, "--target", target]
        await self._change(argv, f"mount {source} on {target}", timeout_s=timeout_s)
        return True

    async def bind(
        self, source: str, target: str, *, read_only: bool = False, propagation: Propagation | None = None
    ) -> bool:
        table = self.table()
        target = canonical(table, target)
        present = mounted_at(table, target)
        changed = present is None
        if present is None:
            prepare_bind_target(source, target)
            await self._change(["mount", "--bind", source, target], f"bind {source} to {target}")
        else:
            refuse_other_bind(table, present, source)
        # Also after an earlier try that ended between the two steps.
        if read_only != (present is not None and "ro" in present.options):
            changed = True
            mode = "ro" if read_only else "rw"
            await self._change(["mount", "-o", f"remount,bind,{mode}", "--target", target], f"make {target} {mode}")
        if propagation is not None and propagation is not propagation_of(mounted_at(self.table(), target)):
            changed = True
            await self._change(["mount", f"--make-{propagation}", target], f"make {target} {propagation}")
        return changed

    async def remount(self, target: str, *, options: Sequence[str]) -> None:
        table = self.table()
        target = canonical(table, target)
        if mounted_at(table, target) is None:
            raise HostError(f"cannot remount {target}: nothing is mounted there")
        await self._change(["mount", "-o", ",".join(["remount", *options]), "--target", target], f"remount {target}")

    async def unmount(
        self, target: str, *, lazy: bool = False, force: bool = False, remove: bool = False, timeout_s: float = 30.0
    ) -> bool:
        table = self.table()
        target = canonical(table, target)
        present = mounted_at(table, target)
        if present is not None:
            flags = [*(["--lazy"] if lazy else []), *(["--force"] if force else [])]
            # Without canonicalising, which would look at the target and hang where its server is dead.
            argv = ["umount", "--no-canonicalize", *flags, target]
            try:
                limit_s = min(timeout_s, _DETACH_S) if lazy else timeout_s
                await self._change(argv, f"unmount {target}", timeout_s=limit_s)
            except CommandDeadlineError:
                # The kernel takes it out of the tree at once, and then says goodbye to a server that may be dead.
                if not lazy or mounted_at(self.table(), target) is not None:
                    raise
            except CommandError as error:
                if "busy" not in error.stderr:
                    raise
                raise MountBusyError(
                    f"cannot unmount {target}: {present.source} is in use",
                    hint=f"`fuser -vm {target}` names the processes; by force it goes when they have ended",
                ) from error
        if remove:
            remove_target(target)
        return present is not None

    async def health(self, target: str, *, timeout_s: float = 5.0) -> MountHealth:
        table = self.table()
        target = canonical(table, target)
        mount = mounted_at(table, target)
        if mount is None:
            return MountHealth(MountState.ABSENT)
        for option in mount.super_options:
            if option in _STOPPED:
                return MountHealth(MountState.CORRUPTED, option)
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        for argv in _probes(mount):
            left_s = max(0.0, ends - loop.time())
            command = Command(
                argv, verb=f"look at {target}", timeout_s=left_s, accept=(0, 1), changes=False, grace_s=0.1
            )
            try:
                result = await self._commands.run(command)
            except CommandDeadlineError:
                return MountHealth(MountState.UNRESPONSIVE)
            if result.exit_code != 0 and not _is_closed_to_us(argv, result.stderr):
                return _sickness(target, result.stderr.decode(errors="replace"))
        return MountHealth(MountState.HEALTHY)

    async def _change(self, argv: Sequence[str], verb: str, *, timeout_s: float = 60.0) -> None:
        await self._commands.run(Command(tuple(argv), verb=verb, timeout_s=timeout_s))


def refuse_difference(present: Mount, source: str, type: str, options: Sequence[str], *, number: str) -> None:
    """Nothing, if what is mounted is what is wanted; else the error that names it."""
    # btrfs has a number of its own, so there the resolved path has to do.
    names = (source, os.path.realpath(source)) if source.startswith("/") else (source,)
    same_source = present.source in names or (number != "" and present.number == number)
    # FUSE file systems call themselves fuse.glusterfs where mount knows them as glusterfs.
    same_type = present.type == type or present.type.partition(".")[2] == type
    part = present.root != "/" and source.startswith("/") and not any(o.startswith("subvol") for o in options)
    if not same_source or not same_type or part:
        raise MountConflictError(
            f"cannot mount {source} on {present.target}: {present.source} ({present.type}) is mounted there",
            hint=f"unmount it first, or choose another directory than {present.target}",
        )
    wrong = []
    if ("ro" in options) != present.read_only:
        wrong.append("read-only" if present.read_only else "read-write")
    wrong += [f"without {option}" for option in options if option in _COMPARED and option not in present.options]
    if wrong:
        raise MountConflictError(
            f"cannot mount {source} on {present.target}: it is mounted there already, but {', '.join(wrong)}",
            hint="unmount it first, and mount it with the wanted options",
        )


def is_bind_of(mounts: Sequence[Mount], present: Mount, source: str) -> bool:
    resolved = os.path.realpath(source)
    # The bind itself covers a source that lies beneath its own target.
    below = covering([mount for mount in mounts if mount.id != present.id], resolved)
    if below is None or below.number != present.number:
        return False
    inner = os.path.relpath(resolved, below.target)
    return str(PurePosixPath(below.root) / inner) == present.root or (inner == "." and below.root == present.root)


def refuse_other_bind(mounts: Sequence[Mount], present: Mount, source: str) -> None:
    if is_bind_of(mounts, present, source):
        return
    raise MountConflictError(
        f"cannot bind {source} to {present.target}: {present.source} ({present.root} of it) is mounted there",
        hint="unmount it first",
    )


def canonical(mounts: Sequence[Mount], target: str) -> str:
    """The target as the kernel writes it, without a look at what is mounted there: it might hang."""
    directory, name = os.path.split(os.path.normpath(target))
    path = os.path.join(os.path.realpath(directory), name) if name else directory
    if mounted_at(mounts, path) is not None:
        return path
    return os.path.realpath(path)


def propagation_of(mount: Mount | None) -> Propagation:
    fields = mount.propagation if mount is not None else ()
    if any(field.startswith("shared:") for field in fields):
        return Propagation.SHARED
    return Propagation.SLAVE if any(field.startswith("master:") for field in fields) else Propagation.PRIVATE


def _probes(mount: Mount) -> list[tuple[str, ...]]:
    """One after the other; nothing is written. Of the file, and not of its file system alone: XFS answers for that one
    after it has shut itself down, and a read past all caches tells of a disk that nobody has missed yet.
    """
    probes: list[tuple[str, ...]] = [
        ("stat", "--file-system", "--format=%T", mount.target),
        ("stat", "--format=%F", mount.target),
    ]
    if _device_number(mount.source):
        block = ("bs=4096", "count=1", "iflag=direct", "status=none")
        probes.append(("dd", f"if={mount.source}", "of=/dev/null", *block))
    return probes


def _is_closed_to_us(argv: Sequence[str], stderr: bytes) -> bool:
    """A disk that this process may not open, as in a container, tells nothing about what is mounted."""
    return argv[0] == "dd" and b"failed to open" in stderr and b"Operation not permitted" in stderr


def _sickness(target: str, text: str) -> MountHealth:
    for words, name in _CORRUPTED.items():
        if words in text:
            return MountHealth(MountState.CORRUPTED, name)
    raise HostError(f"cannot look at {target}: {text.strip()}")


def _with_options(options: Sequence[str]) -> list[str]:
    return ["-o", ",".join(options)] if options else []


def _device_number(source: str) -> str:
    """major:minor, for a source that is a device; it may have been mounted by another of its names."""
    if source.startswith("/"):
        with suppress(OSError):
            found = os.stat(source)
            if stat.S_ISBLK(found.st_mode):
                return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    return ""
