"""Writes new objects at an uneven pace, each carrying the moment at which its write began."""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec

from bench.workload import STAMP, node
from quartermaster.stores import open_store
from quartermaster.stores.base import Store
from quartermaster.support.loop import run


class WriterReport(msgspec.Struct, frozen=True):
    writes_ms: tuple[float, ...]


async def write_stamped(store: Store, namespace: str, count: int) -> tuple[float, ...]:
    """One new object every few milliseconds, in uneven steps; returns how long each write took, in ms."""
    await store.create(node(namespace, count), dry_run=True)  # whatever the first write loads is loaded now
    took: list[float] = []
    for number in range(count):
        await asyncio.sleep(0.005 + 0.001 * (number * 7 % 11))
        begin = time.monotonic_ns()
        await store.create(node(namespace, number, **{STAMP: str(begin)}))
        took.append((time.monotonic_ns() - begin) / 1e6)
    return tuple(took)


async def work(arguments: argparse.Namespace) -> WriterReport:
    store = await open_store(arguments.store)
    try:
        async with asyncio.timeout(arguments.timeout_s):
            return WriterReport(await write_stamped(store, arguments.namespace, arguments.objects))
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--began", type=float, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, default=120.0)
    print(msgspec.json.encode(run(work(parser.parse_args()))).decode(), flush=True)


if __name__ == "__main__":
    main()
