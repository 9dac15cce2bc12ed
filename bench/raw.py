"""The raw limit: the requests that our controller would send, sent by wrk, which does nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from bench.running import BenchFailedError, require
from bench.workload import with_status
from quartermaster.resources import StorageNode
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.stores.kubernetes.request import Request
from quartermaster.testing.servers import KubernetesAccess

SCRIPT = Path(__file__).with_name("raw.lua")
# No server is as slow as this; wrk ends by itself when everything is sent.
SLOWEST_RATE = 50


class RawReport(msgspec.Struct, frozen=True):
    written: int
    duration_s: float

    @property
    def rate(self) -> float:
        return self.written / self.duration_s


class _Recorder:
    """Stands where the transport is and keeps what would have been sent."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def send(self, request: Request) -> bytes:
        self.requests.append(request)
        assert request.body is not None
        return request.body


async def recorded_requests(store: KubernetesStore, namespace: str) -> list[Request]:
    """The status write of each node, byte for byte as the store would send it."""
    nodes = (await store.list(StorageNode, namespace)).items
    recorder, transport = _Recorder(), store.transport
    store.transport = recorder  # type: ignore[assignment]
    try:
        for node in nodes:
            # As a cache holds it: without the record of who owns which field.
            await store.update_status(with_status(node))
    finally:
        store.transport = transport
    return recorder.requests


async def run_raw(
    directory: Path, access: KubernetesAccess, store: KubernetesStore, namespace: str, *, connections: int
) -> RawReport:
    requests = await recorded_requests(store, namespace)
    path = directory / f"raw-{namespace}.txt"
    with path.open("wb") as file:
        for request in requests:
            assert request.body is not None
            file.write(f"{request.method}\t{request.path}\t".encode() + request.body + b"\n")
    time_limit_s = 30 + len(requests) // SLOWEST_RATE
    process = await asyncio.create_subprocess_exec(
        *("wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{time_limit_s}s"),
        *("--timeout", "30s", "--script", str(SCRIPT), access.url, "--", str(path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"RAW_TOKEN": access.token},
    )
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(time_limit_s + 30):
            while line := await process.stdout.readline():
                output += line
                if line.startswith(b"{"):
                    break
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        path.unlink(missing_ok=True)
    if not line.startswith(b"{"):
        raise BenchFailedError(f"wrk did not send everything:\n{output.decode()[-2000:]}")
    report = msgspec.json.decode(line, type=RawReport)
    require(report.written == len(requests), f"wrk wrote {report.written} of {len(requests)}")
    return report
