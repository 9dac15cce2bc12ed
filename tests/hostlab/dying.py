"""A call of the library in a process that is killed in the middle of it, with the program that it has started left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from quartermaster.connectors.files import HostFiles
from quartermaster.host.commands import Command, HostCommands, Result

CHANGES = ("write", "remove", "link", "remove_directory")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def call_and_die(call: Callable[[], Coroutine[Any, Any, Any]], *, step: int, after_s: float) -> bool:
    """Whether the call died: at its `step`th command, that long after it was started, or before such a file change."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            with dying_at(step, after_s):
                asyncio.run(call())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "the call failed"
    return False


@contextmanager
def dying_at(step: int, after_s: float) -> Iterator[None]:
    left = [step]
    run = HostCommands.run

    def is_it() -> bool:
        left[0] -= 1
        return left[0] == 0

    async def run_or_die(self: HostCommands, command: Command) -> Result:
        if command.changes and is_it():
            asyncio.get_running_loop().call_later(after_s, die)
        return await run(self, command)

    def change_or_die(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: Any, **options: Any) -> None:
            if is_it():
                die()
            change(*arguments, **options)

        return changed

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(HostCommands, "run", run_or_die))
        for name in CHANGES:
            stack.enter_context(mock.patch.object(HostFiles, name, change_or_die(getattr(HostFiles, name))))
        yield
