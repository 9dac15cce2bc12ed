"""Our engine doing the job: list, cache, reconcile each node once, write its status, then be idle for a while."""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec

from bench.jobs.usage import JobReport, Reading, peak_rss_bytes, reading
from bench.workload import create_nodes, with_status
from quartermaster.engine import DONE, Controller, Request, Result, Runtime, Scope, generation_changed
from quartermaster.resources import StorageNode
from quartermaster.stores import open_store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support.loop import loop_name, run
from quartermaster.support.tasks import TaskGroup


class Progress:
    def __init__(self, objects: int) -> None:
        self.objects = objects
        self.reconciled = 0
        self.written = 0
        self.seen = 0
        self.first_s = 0.0
        self.last_s = 0.0
        self.complete = asyncio.Event()

    def note(self, _old: StorageNode | None, new: StorageNode | None) -> None:
        """A handler of the cache: every write comes back once."""
        if new is not None and new.status.state:
            self.seen += 1
            if self.seen == self.objects:
                self.complete.set()


class WriteStatus:
    def __init__(self, scope: Scope, namespace: str, progress: Progress) -> None:
        self._store = scope.store
        self._nodes = scope.caches.of(StorageNode, namespace)
        self._progress = progress

    async def reconcile(self, request: Request) -> Result:
        node = self._nodes.get(request)
        if node is None:
            return DONE
        if not self._progress.first_s:
            self._progress.first_s = time.monotonic()
        self._progress.reconciled += 1
        wanted = with_status(node)
        if node.status != wanted.status:
            await self._store.update_status(wanted)
            self._progress.written += 1
            self._progress.last_s = time.monotonic()
        return DONE


async def work(arguments: argparse.Namespace) -> JobReport:
    store = await open_store(arguments.store)
    if arguments.aiohttp:
        assert isinstance(store, KubernetesStore)
        store.transport._is_plain = False
    if arguments.create:  # nobody else can put anything into the memory of this process
        await create_nodes(store, arguments.namespace, arguments.objects)
    progress = Progress(arguments.objects)
    runtime = Runtime(store)
    runtime.add(
        Controller(
            "bench",
            StorageNode,
            lambda scope: WriteStatus(scope, arguments.namespace, progress),
            predicate=generation_changed,
            namespace=arguments.namespace,
            workers=arguments.workers,
        )
    )
    cache = runtime.caches.of(StorageNode, arguments.namespace)
    cache.subscribe(progress.note)
    before = reading()
    async with TaskGroup() as group:
        group.start(runtime.run(), name="runtime")
        async with asyncio.timeout(arguments.timeout_s):
            await cache.synced.wait()
            synced_s = time.monotonic()
            await progress.complete.wait()
        after = reading()
        idle = await _idle(arguments.idle_s)
        runtime.stop()
    await store.close()
    return JobReport(
        reconciled=progress.reconciled,
        written=progress.written,
        began_s=arguments.began,
        before=before,
        synced_s=synced_s,
        first_s=progress.first_s,
        last_s=progress.last_s,
        after=after,
        peak_rss_bytes=peak_rss_bytes(),
        loop=loop_name(),
        idle_s=idle[1].at_s - idle[0].at_s,
        idle_cpu_s=idle[1].cpu_s - idle[0].cpu_s,
    )


async def _idle(seconds: float) -> tuple[Reading, Reading]:
    if seconds:
        await asyncio.sleep(min(2.0, seconds))  # the last timers of the work before
    begin = reading()
    await asyncio.sleep(seconds)
    return begin, reading()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--began", type=float, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--create", action="store_true")
    parser.add_argument("--aiohttp", action="store_true", help="send requests as if they went through a proxy")
    parser.add_argument("--idle-s", type=float, default=0.0)
    parser.add_argument("--timeout-s", type=float, default=300.0)
    print(msgspec.json.encode(run(work(parser.parse_args()))).decode(), flush=True)


if __name__ == "__main__":
    main()
