"""The one name of a volume on this host: a link in the directory where udev keeps its own, by volume id."""

from __future__ import annotations

import os
from pathlib import Path

from quartermaster.connectors.files import Files
from quartermaster.connectors.names import file_name

PREFIX = "quartermaster-"


class Links:
    def __init__(self, dev: Path, files: Files) -> None:
        self._directory = dev / "disk/by-id"
        self._files = files

    def path(self, volume_id: str) -> Path:
        return self._directory / f"{PREFIX}{file_name(volume_id)}"

    def put(self, volume_id: str, device: str) -> str:
        """Relative, as udev makes them: /dev may be seen elsewhere from inside a container."""
        path = self.path(volume_id)
        wanted = os.path.relpath(device, self._directory)
        if self._files.leads_to(path) != wanted:
            self._files.link(path, wanted)
        return str(path)

    def remove(self, volume_id: str) -> None:
        path = self.path(volume_id)
        if self._files.leads_to(path):
            self._files.remove(path)

    def device(self, volume_id: str) -> str:
        """Where the link leads; empty without one."""
        target = self._files.leads_to(self.path(volume_id))
        return os.path.normpath(self._directory / target) if target else ""
