"""What a detached daemon leaves on the disk so that the next agent knows it again.

One record per daemon, written before the start without a process, and again after it. The *token* is new with each
start and stands in the daemon's environment: a daemon whose starter died between the two writes is found by it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.host import files, procfs
from quartermaster.host.daemons.base import Daemon
from quartermaster.support.errors import DaemonError

TOKEN_VARIABLE = "QUARTERMASTER_DAEMON"  # noqa: S105 - names a process, and is no secret


class Record(msgspec.Struct, frozen=True):
    daemon: Daemon
    token: str
    boot: str
    pid: int = 0  # 0: about to be started
    started: int = 0
    executable: str = ""
    exit_code: int | None = None
    ended: bool = False


class Records:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        return sorted(file.name.removesuffix(".json") for file in self._directory.glob("[!.]*.json"))

    def read(self, name: str) -> Record | None:
        file = self._file(name)
        try:
            return msgspec.json.decode(file.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise DaemonError(
                f"cannot tell whether the daemon {name} runs: {file} is damaged: {error}",
                hint="look for its process; when it has ended, remove the file",
            ) from error

    def write(self, record: Record) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(self._file(record.daemon.name), msgspec.json.encode(record))

    def remove(self, name: str) -> None:
        files.remove(self._file(name))

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def live_process(record: Record) -> procfs.ProcessStat | None:
    """The daemon's process; None when it has ended. A process that only has its number is never taken for it."""
    if record.boot != procfs.boot_id():
        return None
    if record.pid == 0:
        return _unrecorded(record)
    found = procfs.process_stat(record.pid)
    if found is None or not found.lives or found.started != record.started:
        return None
    # A wrapper script may have become the program that it wraps; the token it still has.
    # One without any program is on its way out; one without arguments has its new program, and the rest in a moment.
    program = procfs.executable(record.pid)
    if program in ("", record.executable) or procfs.environment_value(record.pid, TOKEN_VARIABLE) == record.token:
        return found
    if not procfs.arguments(record.pid):
        return found
    raise DaemonError(
        f"cannot tell whether process {record.pid} is the daemon {record.daemon.name}: it runs "
        f"{program} and was started as {record.executable}",
        hint="it is neither stopped nor started again until somebody has looked",
    )


def leftovers(record: Record) -> list[procfs.ProcessStat]:
    """Processes of the daemon's session that live on after it."""
    if record.boot != procfs.boot_id():
        return []
    return [
        found
        for found in procfs.processes()
        if found.lives
        and found.session == record.pid != found.pid
        and procfs.environment_value(found.pid, TOKEN_VARIABLE) == record.token
    ]


def _unrecorded(record: Record) -> procfs.ProcessStat | None:
    """The oldest process with our token that leads its session; children of the daemon carry the token as well."""
    marked = [
        found
        for found in procfs.processes()
        if found.lives
        and found.session == found.pid
        and procfs.environment_value(found.pid, TOKEN_VARIABLE) == record.token
    ]
    return min(marked, key=lambda found: found.started, default=None)
