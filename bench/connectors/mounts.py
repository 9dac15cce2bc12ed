"""The table of mounts of a simulated kernel, which is a file of its own: a process cannot be shown another in /proc."""

from __future__ import annotations

from pathlib import Path

ROOT_LINE = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"


class MountTable:
    def __init__(self, root: Path) -> None:
        self._file = root / "proc/self/mountinfo"
        self._sources: dict[str, str] = {}  # by target

    def __contains__(self, target: str) -> bool:
        return target in self._sources

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, target: str, source: str) -> None:
        self._sources[target] = source
        self.write()

    def drop(self, target: str) -> bool:
        """Whether something was mounted there."""
        found = self._sources.pop(target, None) is not None
        self.write()
        return found

    def write(self) -> None:
        lines = [
            f"{number} 1 0:{number} / {target} rw - nfs4 {source} rw\n"
            for number, (target, source) in enumerate(self._sources.items(), 2)
        ]
        temporary = self._file.with_name("mountinfo.new")
        temporary.write_text(ROOT_LINE + "".join(lines))
        temporary.rename(self._file)
