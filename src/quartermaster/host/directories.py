"""Directories that hold somebody's files: made once, measured, and removed only as a whole.

What is being removed gets another name first, so that a volume that is half gone is never taken for a whole one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

import msgspec

from quartermaster.host.commands import Command, Commands
from quartermaster.host.files import write_whole
from quartermaster.support.errors import HostError
from quartermaster.support.files import sync_directory

_REMOVING_TIMEOUT_S = 600.0
_REMOVING = ".removing"
# Not there, or on a file system that knows none.
_NO_ATTRIBUTE = (errno.ENODATA, errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP)


class Space(msgspec.Struct, frozen=True):
    total: int  # bytes of the file system
    available: int  # to users
    file_system: int  # the same number for two paths: they share the room


class Directories(Protocol):
    """Each call that changes something answers whether it did."""

    async def ensure(self, path: str, *, mode: int = 0o770) -> bool:
        """One directory; its parent has to be there, else HostError: it may be a mount that is missing."""
        ...

    async def remove(self, path: str) -> bool:
        """The directory with all that is in it, but nothing that is mounted in it."""
        ...

    async def finish_removals(self, path: str, prefix: str, *, having: str = "") -> bool:
        """Goes on with those of directories in it whose names begin so that were begun and cut off; where others may
        remove theirs there, too, only of such as have that extended attribute.
        """
        ...

    async def exists(self, path: str) -> bool: ...

    async def space(self, path: str) -> Space: ...

    async def entries(self, path: str) -> tuple[str, ...]:
        """The names in it, in order; none where it is missing. HostError where it cannot be read."""
        ...

    async def read(self, path: str) -> bytes | None:
        """A small file; None where it is missing. HostError where it cannot be read."""
        ...

    async def attribute(self, path: str, name: str) -> bytes | None:
        """An extended attribute of a directory; None where it has none of that name or is missing itself. HostError
        where it cannot be read.
        """
        ...

    async def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link; not where it is missing."""
        ...

    async def write(self, path: str, data: bytes) -> bool:
        """A small file, whole or not at all."""
        ...


class HostDirectories:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def ensure(self, path: str, *, mode: int = 0o770) -> bool:
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            if not _is_directory(path):
                raise HostError(f"cannot make the directory {path}: something else has that name") from None
            return False
        except OSError as error:
            raise HostError(f"cannot make the directory {path}: {error.strerror}") from error
        os.chmod(path, mode)  # past the umask
        sync_directory(Path(path).parent)  # who is told that it is there finds it after a power cut too
        return True

    async def remove(self, path: str) -> bool:
        doomed = removing_path(path)
        finished = _is_directory(doomed) and await self._remove(path)
        if not _is_directory(path):
            return finished
        try:
            os.rename(path, doomed)
        except OSError as error:
            raise HostError(f"cannot remove the directory {path}: {error.strerror}") from error
        return await self._remove(path)

    async def finish_removals(self, path: str, prefix: str, *, having: str = "") -> bool:
        begun = await begun_removals(self, path, prefix, having=having)
        return any([await self._remove(f"{path}/{name[1:].removesuffix(_REMOVING)}") for name in begun])

    async def _remove(self, path: str) -> bool:
        argv = ("rm", "--recursive", "--force", "--one-file-system", "--", removing_path(path))
        await self._commands.run(Command(argv, verb=f"remove {path}", timeout_s=_REMOVING_TIMEOUT_S))
        return True

    async def exists(self, path: str) -> bool:
        return _is_directory(path)

    async def space(self, path: str) -> Space:
        try:
            found = os.statvfs(path)
            return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, os.stat(path).st_dev)
        except OSError as error:
            raise HostError(
                f"cannot measure {path}: {error.strerror}", hint="make the directory, or mount what belongs there"
            ) from error

    async def entries(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise HostError(f"cannot list {path}: {error.strerror}") from error

    async def read(self, path: str) -> bytes | None:
        try:
            return _content(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from error

    async def attribute(self, path: str, name: str) -> bytes | None:
        try:
            return os.getxattr(path, name, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_ATTRIBUTE:
                return None
            raise HostError(f"cannot read {name} of {path}: {error.strerror}") from error

    async def is_link(self, path: str) -> bool:
        return _is_link(path)

    async def write(self, path: str, data: bytes) -> bool:
        if await self.read(path) == data:
            return False
        try:
            write_whole(Path(path), data, mode=0o644)
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}") from error
        return True


async def begun_removals(directories: Directories, path: str, prefix: str, *, having: str = "") -> list[str]:
    """With which of them `finish_removals` goes on, by the names that they have now."""
    begun = [name for name in await directories.entries(path) if is_being_removed(name, prefix)]
    return [name for name in begun if not having or await directories.attribute(f"{path}/{name}", having) is not None]


def removing_path(path: str) -> str:
    """What a directory is called from the moment on in which it is meant to be gone."""
    return str(Path(path).with_name(f".{Path(path).name}{_REMOVING}"))


def is_being_removed(name: str, prefix: str) -> bool:
    return name.startswith(f".{prefix}") and name.endswith(_REMOVING)


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


def _is_link(path: str) -> bool:
    return os.path.islink(path)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)
