"""The hook service: calls per second and their latency, sent by wrk; and what one call costs without HTTP.

The request is that of a config with three nodes, nine block devices and a pool cluster that exists; the answer states
the plan, the pool cluster and the whole status. A hook is called because something has changed: in each request the
config and one of the other objects are of another version, and in every fourth one a disk has failed. Beside it, the
same with every object of another version: more of them than the service remembers, so that each has to be read anew.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.engine.counts import Part
from bench.report import Bar, Table, show
from bench.running import ROOT, BenchFailedError, as_installed, require, say
from quartermaster.backends.cstor import HOOKS
from quartermaster.backends.cstor.hook import Hook, SyncRequest
from quartermaster.engine import Runtime
from quartermaster.hooks import decode_request, encode_request, encode_response, hook_controllers
from quartermaster.hooks.gathering import Gatherer
from quartermaster.hooks.protocol import KnownObjects
from quartermaster.resources import CStorClusterConfig, Node, ObjectMeta
from quartermaster.resources.agility import CStorClusterConfigSpec, DiskConfig, LocalDisks, PoolConfig
from quartermaster.resources.kubernetes.core import CoreCondition, NodeStatus
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    ACTIVE,
    OPENEBS_NAMESPACE,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceSpec,
    BlockDeviceStatus,
    CStorPoolCluster,
    DeviceCapacity,
    DeviceDetails,
    NodeAttributes,
)
from quartermaster.resources.selectors import LabelSelector
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import clock
from quartermaster.support.tasks import TaskGroup

SCRIPT = Path(__file__).with_name("cstor_hooks.lua")
NODES, DEVICES = 3, 3
CALLS_BAR, CONNECTIONS = 1_000.0, 8
VARIANTS, ALL_NEW = 10_000, 1_500  # more than the service remembers of what changes from one to the next
_VERSION = re.compile(rb'"resourceVersion":"\d+"')
_ACTIVE_DISK = b'"state":"Active"'
_PORT = re.compile(rb"hooks on http://127\.0\.0\.1:(\d+)")


class WrkReport(msgspec.Struct, frozen=True):
    calls: int
    duration_s: float
    errors: int
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.calls / self.duration_s


def config_hook() -> Hook:
    return next(hook for hook in HOOKS if hook.watch is CStorClusterConfig)


def objects() -> list[Object]:
    """Nodes and their disks."""
    made: list[Object] = []
    for number in range(NODES):
        host = f"node-{number}"
        ready = CoreCondition(type="Ready", status="True", reason="KubeletReady")
        labels = {HOSTNAME_LABEL: host, "topology.kubernetes.io/zone": f"zone-{number}"}
        made.append(Node(metadata=ObjectMeta(name=host, labels=labels), status=NodeStatus(conditions=(ready,))))
        made += [_device(f"blockdevice-{number}-{disk}", host) for disk in range(DEVICES)]
    return made


def _device(name: str, host: str) -> BlockDevice:
    return BlockDevice(
        metadata=ObjectMeta(name=name, namespace=OPENEBS_NAMESPACE, labels={HOSTNAME_LABEL: host}),
        spec=BlockDeviceSpec(
            path=f"/dev/{name}",
            capacity=DeviceCapacity(storage=200 << 30),
            details=DeviceDetails(device_type="disk", drive_type="HDD", serial=name),
            node_attributes=NodeAttributes(node_name=host),
        ),
        status=BlockDeviceStatus(claim_state=UNCLAIMED, state=ACTIVE),
    )


async def settled_request() -> SyncRequest:
    """What the controller would send for a config that has come to its pool cluster, on a store in memory."""
    hook, store = config_hook(), ObjectStore(MemoryKeyValue())
    for obj in objects():
        made = await store.create(obj)
        if isinstance(made, Node) and isinstance(obj, Node):
            await store.update_status(msgspec.structs.replace(made, status=obj.status))
    spec = CStorClusterConfigSpec(
        min_pool_count=NODES,
        disk_config=DiskConfig(min_count=DEVICES, local=LocalDisks(block_device_selector=LabelSelector())),
        pool_config=PoolConfig(raid_type="stripe"),
    )
    await store.create(CStorClusterConfig(metadata=ObjectMeta(name="config", namespace=OPENEBS_NAMESPACE), spec=spec))
    runtime = Runtime(store)
    for controller in hook_controllers(HOOKS):
        runtime.add(controller)
    async with TaskGroup() as group:
        running = group.start(runtime.run())
        async with asyncio.timeout(30):
            while not (await store.list(CStorPoolCluster)).items:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        gatherer = Gatherer(hook, runtime.caches, None)
        (watch,) = gatherer.watches.list()
        request = SyncRequest(watch=watch, attachments=gatherer.attachments(watch), now=clock.timestamp())
        runtime.stop()
        await running
    return request


def variants(body: bytes, count: int, *, all_new: bool) -> list[bytes]:
    """The request again and again, as it would come after the config and one object, or everything in it, changed."""
    version = itertools.count(10_000)
    places = [match.span() for match in _VERSION.finditer(body)]
    disks = [match.start() for match in re.finditer(re.escape(_ACTIVE_DISK), body)]
    found = []
    for number in range(count):
        changed = range(len(places)) if all_new else (0, 1 + number % (len(places) - 1))
        edits = [(*places[which], b'"resourceVersion":"%d"' % next(version)) for which in changed]
        if number % 4 == 3:
            failed = disks[number % len(disks)]
            edits.append((failed, failed + len(_ACTIVE_DISK), b'"state":"Inactive"'))
        found.append(edited(body, edits))
    return found


def edited(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for start, end, text in sorted(edits, reverse=True):
        body = body[:start] + text + body[end:]
    return body


def one_call_us(body: bytes, count: int) -> dict[str, float]:
    """Microseconds per call of each step, in this process."""
    hook, now = config_hook(), clock.timestamp()
    request = decode_request(hook, body, now=now)
    response = hook.sync(request)
    steps: dict[str, Any] = {
        "decode with every object new": lambda: decode_request(hook, body, now=now),
        "hook": lambda: hook.sync(request),
        "encode": lambda: encode_response(response),
    }
    result = {}
    for name, step in steps.items():
        started = time.perf_counter()
        for _ in range(count):
            step()
        result[name] = (time.perf_counter() - started) / count * 1e6
    return result


async def run_wrk(url: str, body_path: Path, duration_s: int) -> WrkReport:
    process = await asyncio.create_subprocess_exec(
        *("wrk", "--threads", "1", "--connections", str(CONNECTIONS), "--duration", f"{duration_s}s"),
        *("--timeout", "10s", "--script", str(SCRIPT), url, "--", str(body_path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(duration_s + 30):
        output, _ = await process.communicate()
    line = next((line for line in output.splitlines() if line.startswith(b"{")), b"")
    if not line:
        raise BenchFailedError(f"wrk reported nothing:\n{output.decode()[-2000:]}")
    return msgspec.json.decode(line, type=WrkReport)


def processor_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def serve_and_measure(directory: Path, bodies: list[bytes], duration_s: int) -> tuple[WrkReport, float]:
    """What wrk saw, and the processor time of one call in milliseconds."""
    body_path = directory / "hook-requests.json"
    body_path.write_bytes(b"\n".join(bodies))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quartermaster", "cstor", "serve", "--listen", "127.0.0.1:0"),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=as_installed(directory),
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            line = await process.stderr.readline()
        match = _PORT.search(line)
        if match is None:
            raise BenchFailedError(f"the hook service did not start: {line.decode()}")
        url = f"http://127.0.0.1:{int(match[1])}/sync/{config_hook().name}"
        await run_wrk(url, body_path, 1)  # what is compiled or filled on first use is not measured
        used_s = processor_s(process.pid)
        report = await run_wrk(url, body_path, duration_s)
        used_s = processor_s(process.pid) - used_s
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)
    return report, used_s * 1e3 / report.calls


async def run(directory: Path, *, quick: bool) -> Part:
    request = await settled_request()
    body = encode_request(config_hook(), request)
    answer = encode_response(config_hook().sync(request))
    require(b"CStorPoolCluster" in answer, "the answer has no pool cluster")
    say(f"hook service: a request of {len(body)} bytes, an answer of {len(answer)} bytes")
    bodies, new = variants(body, VARIANTS, all_new=False), variants(body, ALL_NEW, all_new=True)
    require(sum(map(len, new)) > KnownObjects().limit, "the service could remember all requests")
    steps = one_call_us(body, 50 if quick else 1_000)
    rows: list[tuple[str, str]] = []
    reports = []
    for what, given in (("one object changed", bodies), ("every object changed", new)):
        report, cpu_ms = await serve_and_measure(directory, given, 2 if quick else 15)
        require(report.errors == 0, f"{report.errors} calls were refused")
        reports.append(report)
        rows += (
            (f"{what}: calls per second", show(report.rate)),
            (f"{what}: p50 ms", show(report.p50_ms)),
            (f"{what}: p99 ms", show(report.p99_ms)),
            (f"{what}: processor time of one call, ms", show(cpu_ms)),
        )
    rows += ((f"{name}, µs without HTTP", show(figure)) for name, figure in steps.items())
    about = f"{NODES} nodes, {NODES * DEVICES} block devices, an existing pool cluster; {CONNECTIONS} connections"
    return Part(
        plots=(),
        bars=(Bar("hook service, calls per second on one core", reports[0].rate, "at least", CALLS_BAR, "calls/s"),),
        tables=(Table(f"Hook service: {about}", ("figure", "value"), tuple(rows)),),
    )
