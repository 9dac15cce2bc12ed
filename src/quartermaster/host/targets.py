"""What lies beneath a mount.

An empty target directory is a trap: when the mount is missing, writers fill the root disk unseen. A target that is made
with `protect` can therefore not be written to while nothing is mounted on it, not even by root where the file system
knows the immutable flag.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from contextlib import suppress
from pathlib import Path

from quartermaster.support.errors import HostError, MountConflictError

_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS
_SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS
_IMMUTABLE = 0x10


def prepare_directory(target: str, *, protect: bool) -> None:
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o755)
    if not path.is_dir():
        raise MountConflictError(f"cannot mount on {target}: it is not a directory")
    if any(path.iterdir()):
        raise MountConflictError(
            f"cannot mount on {target}: the directory is not empty, its files would be hidden",
            hint="move them away, or choose another directory",
        )
    if protect:
        # One that was protected before (its mount went with a boot) is immutable, and refuses even the same mode.
        if stat.S_IMODE(path.stat().st_mode) != 0:
            path.chmod(0o000)
        _set_immutable(path, True)


def prepare_bind_target(source: str, target: str) -> None:
    if os.path.isdir(source):
        prepare_directory(target, protect=False)
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=True)


def remove_target(target: str) -> None:
    path = Path(target)
    if path.is_file() and path.stat().st_size == 0:
        path.unlink()
    elif path.is_dir():
        unprotect(path)
        try:
            path.rmdir()
        except OSError as error:
            raise HostError(f"cannot remove {target}: {error.strerror}") from error


def remove_if_empty(path: Path) -> None:
    """A directory, or a file to which something was to be bound; whatever holds something stays."""
    with suppress(OSError):
        if path.is_dir():
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()


def unprotect(path: Path) -> None:
    """Undo `protect`, for whoever removes a target together with all that is around it."""
    _set_immutable(path, False)


def _set_immutable(path: Path, wanted: bool) -> None:
    """As far as the file system and our rights go: without it, mode 0 keeps everybody but root out."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = struct.unpack("i", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("i", 0)))[0]
            flags = flags | _IMMUTABLE if wanted else flags & ~_IMMUTABLE
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("i", flags))
        finally:
            os.close(fd)
