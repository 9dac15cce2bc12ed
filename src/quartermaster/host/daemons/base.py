"""Who runs a daemon is a seam: a detached process, a systemd unit, later a Pod. Backends never know which they have.

Daemons outlive whoever starts them: `ensure` adopts what runs, and never restarts a running daemon, also not when its
description has changed; that is `replace`, at a moment that the caller chooses. A dead daemon is started again by the
caller's next `ensure`, who also decides how long to wait before it. The one exception is a `lasting` daemon, which is
for the agent itself: nobody is there who would start it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from quartermaster.host.commands import Result
from quartermaster.support.errors import InvalidError

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")


class DaemonState(StrEnum):
    ABSENT = "absent"  # not known here
    RUNNING = "running"
    DEAD = "dead"  # it was started and has ended


class Daemon(msgspec.Struct, frozen=True):
    """What is to run. It stays in the foreground; secrets reach it in private files, never in arguments."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str] = {}
    directory: str = "/"
    log_limit: int = 16 << 20
    stop_timeout_s: float = 10.0  # between SIGTERM and SIGKILL
    keep_children: bool = False  # processes that it started live on when it is stopped
    lasting: bool = False  # started again by the host itself, after its end and after a boot, where the host can

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidError(f'cannot run a daemon named "{self.name}": use lower-case letters, digits, "-" and "."')
        if not self.argv:
            raise InvalidError(f"cannot run the daemon {self.name}: it has no command")

    @property
    def fingerprint(self) -> str:
        """Changes with anything that needs a restart to take effect."""
        parts = (self.argv, sorted(self.environment.items()), self.directory, *((True,) if self.lasting else ()))
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


class DaemonStatus(msgspec.Struct, frozen=True):
    name: str
    state: DaemonState
    pid: int = 0
    fingerprint: str = ""  # of the description that it was started with
    exit_code: int | None = None  # of a dead one, as far as known; negative for a signal
    message: str = ""
    lasting: bool = False  # the host itself starts it again

    @property
    def running(self) -> bool:
        return self.state is DaemonState.RUNNING

    def outdated(self, daemon: Daemon) -> bool:
        """Whether it was started with another description: `replace` brings it up to date."""
        return self.running and self.fingerprint != daemon.fingerprint


class DaemonRuntime(Protocol):
    """Every call may be repeated; a crash at any point leaves nothing that the next `ensure` or `stop` cannot find."""

    async def ensure(self, daemon: Daemon) -> DaemonStatus:
        """Running, by this or an earlier start. ToolMissingError, DaemonError."""
        ...

    async def stop(self, name: str) -> bool:
        """Ended and forgotten; False when there was nothing to end. DaemonError when it cannot be killed."""
        ...

    async def replace(self, daemon: Daemon) -> DaemonStatus:
        """Stopped, if it runs with another description, and running with this one."""
        ...

    async def status(self, name: str) -> DaemonStatus: ...

    async def list(self) -> tuple[DaemonStatus, ...]:
        """All that are known here, by name."""
        ...

    async def run(self, name: str, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes = b"") -> Result:
        """A tool beside the daemon, with its environment and its view of the files."""
        ...

    async def logs(self, name: str, *, lines: int = 100) -> str: ...
