"""One host as a process of its own, which can be told to die at one of its steps: `python host_process.py HOST.json`.

The steps are those by which a leader changes the membership of etcd: each write of what it intends, each call that
changes the list of members. Dying is SIGKILL, just before the step.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.etcd.membership import EtcdSettings

ROOT = Path(__file__).resolve().parents[3]


class Told(msgspec.Struct, frozen=True):
    directory: str
    name: str
    address: str
    trace: str  # where steps are written, by all hosts
    settings: EtcdSettings
    kill_at: int = -1  # the number of a step
    kill_first: tuple[str, ...] = ()  # names of steps: at the first of each


def counted(told: Told, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a line in the trace for each call; the chosen one is never made."""

    async def call(*arguments: Any, **options: Any) -> Any:
        step = name(*arguments) if callable(name) else name
        if step:
            before = Path(told.trace).read_text().splitlines()
            with open(told.trace, "a") as trace:
                trace.write(f"{step}\n")
            if len(before) == told.kill_at or (step in told.kill_first and step not in before):
                os.kill(os.getpid(), signal.SIGKILL)
        return await function(*arguments, **options)

    return call


async def main(told: Told) -> None:
    from quartermaster.backends.etcd.client import EtcdClient
    from quartermaster.backends.etcd.memory import Book, Memory
    from quartermaster.support.tasks import TaskGroup
    from tests.orchestration.joining.hosts import LoopbackHost

    def written(book: Book, memory: Memory) -> str:
        changed = [seat for seat in memory.seats if seat not in book.memory.seats]
        gone = [seat for seat in book.memory.seats if seat.id not in {one.id for one in memory.seats}]
        return " ".join([*(f"write {seat.id} {seat.phase}" for seat in changed), *(f"forget {one.id}" for one in gone)])

    Book.write = counted(told, written, Book.write)  # type: ignore[method-assign, arg-type]
    for call in ("add_learner", "promote", "remove"):
        setattr(EtcdClient, call, counted(told, call, getattr(EtcdClient, call)))
    host = LoopbackHost(Path(told.directory), told.name, told.address)
    host.settings = told.settings
    async with TaskGroup() as group:
        host.start(group)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    asyncio.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Told)))
