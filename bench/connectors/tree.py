"""The files by which a simulated kernel shows what it has, under the root of a fake host."""

from __future__ import annotations

import os
from pathlib import Path


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def enlist(self, kind: str, name: str, place: str, *, device: str = "") -> None:
        (self.root / "sys" / place).mkdir(parents=True, exist_ok=True)
        if device:
            self.link(f"sys/{place}/device", f"sys/{device}", replace=True)
        self.link(f"sys/class/{kind}/{name}", f"sys/{place}", replace=True)

    def attributes(self, place: str, **values: str | bytes) -> None:
        directory = self.root / "sys" / place
        directory.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (directory / name).write_bytes(value if isinstance(value, bytes) else value.encode())

    def node(self, name: str) -> None:
        """Whole at once: whoever waits for it may read it."""
        temporary = self.root / "dev" / f".{name}"
        temporary.write_bytes(bytes(512))
        temporary.rename(self.root / "dev" / name)

    def link(self, place: str, to: str, *, replace: bool = False) -> None:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if replace:
            path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(self.root / to, path.parent))
