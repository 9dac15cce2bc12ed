"""What this host has attached, or was about to: one file per volume, whole or not there, without a secret.

The record is written before the first command that changes the host, so whoever comes after a process that died knows
what to look for. It also says which shared things (a session, a mount) the volume uses and whether we made them: the
count of their users is never stored, it follows from the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.connectors.errors import RecordDamagedError
from quartermaster.connectors.files import Files
from quartermaster.connectors.names import file_name, text_of

MOUNT_NOTE = "mount "  # before the directory on which we have mounted the volume
_SUFFIX = ".json"
_WRITTEN_S = 600.0  # nobody takes that long to write a record


class State(StrEnum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # somebody was told of it, and may use it: it is never taken back
    DISCONNECTING = "disconnecting"


class Record(msgspec.Struct, frozen=True, rename="camel"):
    volume_id: str
    driver: str  # its type
    client: str  # which of the driver's routes: kernel, userspace …
    state: State
    place: dict[str, Any]  # the driver's own words for what to look for on this host
    boot: str  # claims and devices do not outlive it
    claims: dict[str, bool] = {}  # shared things that the volume uses; whether we made them
    notes: dict[str, str] = {}  # what the driver has to remember
    path: str = ""
    device: str = ""
    identity: str = ""
    format: int = 1


class Records:
    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def get(self, volume_id: str) -> Record | None:
        """RecordDamagedError where it cannot be read."""
        return self._read(self._path(volume_id))

    def put(self, record: Record) -> None:
        self._files.write(self._path(record.volume_id), msgspec.json.encode(record))

    def remove(self, volume_id: str) -> None:
        self._files.remove(self._path(volume_id))

    def all(self) -> Iterator[Record | RecordDamagedError]:
        """By volume; one that is damaged hides no other."""
        for name in self._files.names(self._directory):
            if name.endswith(_SUFFIX) and not name.startswith("."):
                try:
                    found = self._read(self._directory / name)
                except RecordDamagedError as error:
                    yield error
                else:
                    if found is not None:
                        yield found

    def users_of(self, thing: str, *, boot: str, but: str) -> tuple[Mapping[str, Record], int]:
        """The other volumes that claim a shared thing; and how many records cannot be read, which may claim it too."""
        # Looked for in the bytes first: most records of a host with many volumes are about something else.
        needle = msgspec.json.encode(thing)
        users: dict[str, Record] = {}
        damaged = 0
        for name in self._files.names(self._directory):
            if not name.endswith(_SUFFIX) or name.startswith("."):
                continue
            try:
                found = self._read(self._directory / name, having=needle)
            except RecordDamagedError:
                damaged += 1
                continue
            if found is not None and thing in found.claims and found.boot == boot and found.volume_id != but:
                users[found.volume_id] = found
        return users, damaged

    def _read(self, path: Path, *, having: bytes = b"") -> Record | None:
        data = self._files.data(path)
        if not data and not self._files.exists(path):
            return None
        if having and having not in data and data.endswith(b"}"):
            return None
        try:
            return msgspec.json.decode(data, type=Record)
        except msgspec.DecodeError as error:
            raise RecordDamagedError(
                f"cannot read the record of an attachment, {path}: {error}",
                volume_id=text_of(path.name.removesuffix(_SUFFIX)),
                hint="disconnect the volume with its connection information; that mends it",
            ) from error

    def _path(self, volume_id: str) -> Path:
        return self._directory / f"{file_name(volume_id)}{_SUFFIX}"


def sweep(directory: Path, files: Files) -> None:
    """Take away what a process that died has left of a record that it was writing."""
    for name in files.names(directory):
        path = directory / name
        if name.startswith(".") and f"{_SUFFIX}." in name and files.age_s(path) > _WRITTEN_S:
            files.remove(path)
