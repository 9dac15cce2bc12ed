"""A child whose parent was killed between the fork and the exec, for as long as a test wants."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from quartermaster.host.starting import starting


class Unexecuted:
    """Becomes the program at `go`. It is a child of the test's, and ends with the block at the latest."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        reading, self._writing = os.pipe()
        with starting():
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    os.close(self._writing)
                    os.setsid()
                    if os.read(reading, 1):
                        os.execve(argv[0], list(argv), dict(environment))
                finally:
                    os._exit(127)
        os.close(reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._writing)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def go(self) -> None:
        os.write(self._writing, b"1")
