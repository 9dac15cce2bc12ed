"""kopf doing the same job in its leanest form: one event handler that patches the status, Events off.

Its own settings bound the workers: with `--workers N` no more than N objects at once, and a worker that has nothing to
do makes room at once; with 0 it runs as it comes, with a worker for every object.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from typing import Any

import kopf
import msgspec

from bench.jobs.usage import JobReport, Reading, peak_rss_bytes, reading
from bench.workload import status_document
from quartermaster.support.loop import loop_name, run

_IDLE_S = 0.001


class Progress:
    def __init__(self) -> None:
        self.before = Reading(0.0, 0.0, 0)
        self.reconciled = 0
        self.first_s = 0.0
        self.last_s = 0.0
        self.seen: dict[str, None] = {}
        self.complete = asyncio.Event()


def registry_of(arguments: argparse.Namespace, progress: Progress) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        if arguments.workers:
            settings.queueing.worker_limit = arguments.workers
            settings.queueing.idle_timeout = _IDLE_S
        progress.before = reading()

    @kopf.on.login(registry=registry)
    async def login(**values: Any) -> Any:
        return kopf.login_with_kubeconfig(**values)

    @kopf.on.event("coreos.com", "v1", "storagenodes", registry=registry)
    async def handle(name: str, uid: str, meta: Any, status: Any, patch: kopf.Patch, **_: Any) -> None:
        if status.get("state"):
            progress.seen[uid] = None
            progress.last_s = time.monotonic()
            if len(progress.seen) == arguments.objects:
                progress.complete.set()
            return
        if not progress.first_s:
            progress.first_s = time.monotonic()
        progress.reconciled += 1
        patch.status.update(status_document(name, meta["generation"]))

    return registry


async def work(arguments: argparse.Namespace) -> JobReport:
    progress = Progress()
    stop = asyncio.Event()
    operator = kopf.operator(
        registry=registry_of(arguments, progress),
        namespaces=[arguments.namespace],
        standalone=True,
        stop_flag=stop,
    )
    running = asyncio.ensure_future(operator)
    async with asyncio.timeout(arguments.timeout_s):
        await progress.complete.wait()
    after = reading()
    report = JobReport(
        reconciled=progress.reconciled,
        written=len(progress.seen),
        began_s=arguments.began,
        before=progress.before,
        first_s=progress.first_s,
        last_s=progress.last_s,
        after=after,
        peak_rss_bytes=peak_rss_bytes(),
        loop=loop_name(),
    )
    # Said before the end, for which it waits until its workers have been idle for seconds.
    print(msgspec.json.encode(report).decode(), flush=True)
    stop.set()
    await asyncio.wait([running], timeout=arguments.timeout_s)
    return report


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--began", type=float, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--objects", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--timeout-s", type=float, default=600.0)
    logging.basicConfig(level=logging.ERROR)
    run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
