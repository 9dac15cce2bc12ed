"""The small files that connecting needs: attributes of the kernel, configuration, links. One door, so that a test can
count each operation, fail it, or let the process die in it.

Writing to an attribute of sysfs may hang as long as a storage system does not answer. Such writes are commands (see
`Context.write_attribute`) and not here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from quartermaster.host.files import remove, write_whole
from quartermaster.support import clock, entropy
from quartermaster.support.files import sync_directory

_CHUNK = 1 << 16


class Files(Protocol):
    """Reading answers with nothing where nothing is; writing is whole or not at all, and else an OSError."""

    def text(self, path: Path) -> str: ...

    def data(self, path: Path) -> bytes: ...

    def names(self, directory: Path) -> list[str]:
        """Sorted."""
        ...

    def exists(self, path: Path) -> bool: ...

    def age_s(self, path: Path) -> float:
        """Since it was written last; 0 where it is not there."""
        ...

    def leads_to(self, link: Path) -> str:
        """What a symbolic link says; empty where there is none."""
        ...

    def write(self, path: Path, data: bytes, *, lasting: bool = True) -> None:
        """Readable by the owner alone. One that is `lasting` is not lost by a power cut, and never there in part: after
        it there may be what was there before, but for a name that is new."""
        ...

    def remove(self, path: Path) -> None: ...

    def link(self, path: Path, target: str) -> None:
        """Makes the symbolic link, or turns it to another target in one step."""
        ...

    def make_directory(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None:
        """If it is there and empty."""
        ...


class HostFiles:
    def text(self, path: Path) -> str:
        return self.data(path).decode(errors="replace").strip()

    def data(self, path: Path) -> bytes:
        # By system calls: a host with a hundred sessions has a hundred attributes to read for each attach.
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            parts = list(iter(lambda: os.read(fd, _CHUNK), b""))
        except OSError:
            return b""
        finally:
            os.close(fd)
        return b"".join(parts)

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def age_s(self, path: Path) -> float:
        try:
            return max(0.0, clock.wall_time() - path.stat().st_mtime)
        except OSError:
            return 0.0

    def leads_to(self, link: Path) -> str:
        try:
            return os.readlink(link)
        except OSError:
            return ""

    def write(self, path: Path, data: bytes, *, lasting: bool = True) -> None:
        # Each wait for the disk holds up every attach of this process, so there are no more than there must be.
        sync_name = lasting and not os.path.lexists(path)
        try:
            write_whole(path, data, sync_data=lasting, sync_name=sync_name)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if lasting:
                sync_directory(path.parent.parent)
            write_whole(path, data, sync_data=lasting, sync_name=sync_name)

    def remove(self, path: Path) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            remove(path)

    def link(self, path: Path, target: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name[:100]}.{entropy.name_suffix(8)}")
        os.symlink(target, temporary)
        try:
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        sync_directory(path.parent)

    def remove_directory(self, path: Path) -> None:
        with suppress(OSError):
            os.rmdir(path)
