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

from quartermaster.host.files import remove, sync_directory, write_whole
from quartermaster.support import entropy


class Files(Protocol):
    """Reading answers with nothing where nothing is; writing is whole or not at all, and else an OSError."""

    def text(self, path: Path) -> str: ...

    def data(self, path: Path) -> bytes: ...

    def names(self, directory: Path) -> list[str]:
        """Sorted."""
        ...

    def exists(self, path: Path) -> bool: ...

    def leads_to(self, link: Path) -> str:
        """What a symbolic link says; empty where there is none."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Readable by the owner alone, and on the disk when this returns."""
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
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def leads_to(self, link: Path) -> str:
        try:
            return os.readlink(link)
        except OSError:
            return ""

    def write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, data)

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
