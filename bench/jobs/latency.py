"""A controller that notes how long after a write its reconciler was called.

The writer puts the moment before its call into the object, on the clock that all processes of a machine share; so what
is measured is the write, the way to the watcher, the cache and the queue together.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec

from bench.jobs.writer import write_stamped
from bench.workload import STAMP
from quartermaster.engine import DONE, Controller, Request, Result, Runtime, Scope
from quartermaster.resources import StorageNode
from quartermaster.stores import open_store
from quartermaster.support.loop import run
from quartermaster.support.tasks import TaskGroup


class LatencyReport(msgspec.Struct, frozen=True):
    latencies_ms: tuple[float, ...]
    writes_ms: tuple[float, ...] = ()


class Note:
    def __init__(self, scope: Scope, namespace: str, latencies: dict[Request, float]) -> None:
        self._nodes = scope.caches.of(StorageNode, namespace)
        self._latencies = latencies

    async def reconcile(self, request: Request) -> Result:
        now = time.monotonic_ns()
        obj = self._nodes.get(request)
        if obj is not None:
            self._latencies[request] = (now - int(obj.metadata.annotations[STAMP])) / 1e6
        return DONE


async def work(arguments: argparse.Namespace) -> LatencyReport:
    store = await open_store(arguments.store)
    latencies: dict[Request, float] = {}
    runtime = Runtime(store)
    namespace = arguments.namespace
    runtime.add(Controller("bench", StorageNode, lambda scope: Note(scope, namespace, latencies), namespace=namespace))
    cache = runtime.caches.of(StorageNode, namespace)
    async with TaskGroup() as group:
        group.start(runtime.run(), name="runtime")
        async with asyncio.timeout(arguments.timeout_s):
            await cache.synced.wait()
            await asyncio.sleep(0.2)  # the watch that follows the list is on its way
            print("ready", flush=True)
            writes_ms: tuple[float, ...] = ()
            if arguments.write:
                writes_ms = await write_stamped(store, namespace, arguments.objects)
            while len(latencies) < arguments.objects:
                await asyncio.sleep(0.02)
        runtime.stop()
    await store.close()
    return LatencyReport(tuple(latencies.values()), writes_ms)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--began", type=float, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--write", action="store_true", help="write as well: for a store that is in this process")
    parser.add_argument("--timeout-s", type=float, default=120.0)
    print(msgspec.json.encode(run(work(parser.parse_args()))).decode(), flush=True)


if __name__ == "__main__":
    main()
