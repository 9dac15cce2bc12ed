"""Other processes for the tests of the embedded store. Each mode reports on standard output, a line per fact.

write PATH          numbered keys, eight at a time, until killed: "NUMBER REVISION" after each acknowledgement
write-alone PATH N  N numbered keys, one after the other
increment PATH N    adds 1 to /counter N times by compare-and-swap: "ready", then each REVISION it made
lease PATH TTL_S    a key /held under a lease that is never kept alive: "held", then waits
nursery PATH        for every line of input forks a process that does `write` and prints "pid PID" first
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from quartermaster.stores.kv.base import Compare, Put
from quartermaster.stores.kv.sqlite import SqliteKeyValue


def report(text: str) -> None:
    os.write(1, text.encode() + b"\n")


async def write(path: Path) -> None:
    store = await SqliteKeyValue.open(path)
    numbers = itertools.count(await store.revision())

    async def one_after_the_other() -> None:
        while True:
            number = next(numbers)
            value = str(number).encode() * 50
            outcome = await store.transact([], [Put(f"/n/{number:09}", value), Put("/newest", value)])
            report(f"{number} {outcome.revision}")

    await asyncio.gather(*(one_after_the_other() for _ in range(8)))


async def write_alone(path: Path, count: int) -> None:
    store = await SqliteKeyValue.open(path)
    for number in range(count):
        outcome = await store.transact([], [Put(f"/n/{number:09}", b"x" * 200)])
        report(f"acknowledged {number} {outcome.revision}")
    await store.close()


async def increment(path: Path, count: int) -> None:
    store = await SqliteKeyValue.open(path)
    report("ready")
    await asyncio.to_thread(sys.stdin.readline)
    for _ in range(count):
        while True:
            entry = await store.get("/counter")
            value, modified = (int(entry.value), entry.modified) if entry else (0, 0)
            outcome = await store.transact(
                [Compare("/counter", modified=modified)], [Put("/counter", str(value + 1).encode())]
            )
            if outcome.succeeded:
                report(str(outcome.revision))
                break
    await store.close()


async def lease(path: Path, ttl_s: float) -> None:
    store = await SqliteKeyValue.open(path)
    identity = await store.grant(ttl_s)
    await store.transact([], [Put("/held", b"by a process", identity)])
    report("held")
    await asyncio.sleep(60)


def nursery(path: Path) -> None:
    """Starting an interpreter a hundred times would take longer than the test may."""
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            report(f"pid {os.getpid()}")
            asyncio.run(write(path))
        os.waitpid(pid, 0)
        report("ended")


def main(mode: str, path: Path, *numbers: str) -> None:
    if mode == "write":
        asyncio.run(write(path))
    elif mode == "write-alone":
        asyncio.run(write_alone(path, int(numbers[0])))
    elif mode == "increment":
        asyncio.run(increment(path, int(numbers[0])))
    elif mode == "lease":
        asyncio.run(lease(path, float(numbers[0])))
    else:
        nursery(path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
