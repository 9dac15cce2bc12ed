"""A fourth host joins three that have an etcd: from `qm join` to its first assignment done, on virtual hosts."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from statistics import median

from bench.orchestration.counts import Counts, Part
from bench.report import Bar, Table, show
from bench.running import require, say
from quartermaster.testing.lab import Lab, VirtualHost

QM = str(Path(sys.executable).parent / "qm")
JOINED_S = 2.0
PATIENCE_S = 60.0
NODE = """apiVersion: coreos.com/v1
kind: StorageNode
metadata: {{name: {name}}}
spec: {{type: {type}, nodeSelector: {{kubernetes.io/hostname: {name}}}, directories: [/srv]}}
"""


async def run(directory: Path, counts: Counts) -> Part:
    async with await Lab.create(directory / "lab", hosts=3 + counts.joins, disks=0, name="bench") as lab:
        first, *others = lab.hosts
        say("three hosts come up")
        await qm(first, "up", "--name", first.name, "--address", first.address, "--debounce", "0")
        for host in others[:2]:
            await join(first, host)
        await etcd_of(first, 3)
        times = [await measure(first, host) for host in others[2:]]
    bar = Bar("qm join of a fourth host to its first assignment done", median(times), "at most", JOINED_S, "s")
    row = (str(len(times)), f"{show(median(times))} s", f"{show(max(times))} s")
    return Part((bar,), (Table("A host joins", ("joins", "median", "most"), (row,)),))


async def qm(host: VirtualHost, *arguments: str, stdin: bytes = b"") -> str:
    return (await host.run([QM, *arguments], timeout_s=PATIENCE_S, stdin=stdin)).text


async def join(first: VirtualHost, host: VirtualHost) -> None:
    token = (await qm(first, "token", "create")).split()[-1]
    await qm(host, "join", token, "--name", host.name, "--address", host.address)


async def etcd_of(first: VirtualHost, members: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        shown = await qm(first, "get", "assignments", "-o", "jsonpath={.items[*].metadata.name}")
        if sum(name.startswith("etcd.") for name in shown.split()) >= members:
            return
        require(time.monotonic() < deadline, f"etcd has not grown to {members} members: {shown}")
        await asyncio.sleep(0.5)


async def measure(first: VirtualHost, host: VirtualHost) -> float:
    """The node is declared before its host is there, so that the leader has something for it at once."""
    await qm(first, "apply", "-f", "-", stdin=NODE.format(name=host.name, type="local").encode())
    token = (await qm(first, "token", "create")).split()[-1]
    began = time.perf_counter()
    await qm(host, "join", token, "--name", host.name, "--address", host.address)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        name = f"local-default.{host.name}"
        shown = await qm(
            first, "get", "assignments", "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.state} {end}"
        )
        if f"{name}=succeeded" in shown.split():
            return time.perf_counter() - began
        require(time.monotonic() < deadline, f"{name} is not done after {PATIENCE_S:.0f} s: {shown}")
        await asyncio.sleep(0.05)
