"""A fourth host joins three that have an etcd: from `qm join` to its first assignment done, on virtual hosts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from bench.orchestration.counts import Counts, Part
from bench.report import Bar, Table, show
from bench.running import require, say
from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.orchestration.joining.access import read_access
from quartermaster.orchestration.timings import Timings
from quartermaster.resources import ConfigMap
from quartermaster.resources.orchestration import SUCCEEDED, Assignment
from quartermaster.stores import Store, open_store
from quartermaster.support.errors import NotFoundError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.lab import Lab, VirtualHost

QM = str(Path(sys.executable).parent / "qm")
JOINED_S = 2.0
PATIENCE_S = 60.0
NODE = """apiVersion: coreos.com/v1
kind: StorageNode
metadata: {{name: {name}}}
spec: {{type: local, nodeSelector: {{kubernetes.io/hostname: {name}}}, directories: [/srv]}}
"""


async def run(directory: Path, counts: Counts) -> Part:
    hosts = counts.members + counts.joins
    async with await Lab.create(directory / "lab", hosts=hosts, disks=0, name="bench") as lab:
        first, *others = lab.hosts
        say(f"the first of {hosts} hosts come up")
        for host in lab.hosts:
            write_settings(host.state, HostSettings(name=host.name, timings=Timings(debounce_s=0.0)))
        await qm(first, "up", "--address", first.address)
        for host in others[: counts.members - 1]:
            await join(host, await token(first))
        access = read_access(first.state)
        require(access is not None, "the first host has no access to its store")
        assert access is not None
        store = await open_store(replace(access, directory=str(first.state)).leader_url)
        try:
            await until_members(store, counts.members)
            times = [await measure(store, first, host) for host in others[counts.members - 1 :]]
        finally:
            await store.close()
    bar = Bar("qm join of a fourth host to its first assignment done", median(times), "at most", JOINED_S, "s")
    row = (str(len(times)), f"{show(median(times))} s", f"{show(max(times))} s")
    return Part((bar,), (Table("A host joins", ("joins", "median", "most"), (row,)),))


async def qm(host: VirtualHost, *arguments: str, stdin: bytes = b"") -> str:
    return (await host.run([QM, *arguments], timeout_s=PATIENCE_S, stdin=stdin)).text


async def token(first: VirtualHost) -> str:
    return (await qm(first, "token", "create")).split()[-1]


async def join(host: VirtualHost, with_token: str) -> None:
    await qm(host, "join", with_token, "--address", host.address)


async def until_members(store: Store, members: int) -> None:
    """etcd has grown, and does not while anything is measured."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        memory = json.loads((await store.get(ConfigMap, MEMORY_NAME, "default")).data["members"])
        serving = [seat for seat in memory["seats"] if seat["phase"] == "serving"]
        if len(serving) == members == len(memory["seats"]):
            return
        require(time.monotonic() < deadline, f"etcd has not grown to {members} members: {memory}")
        await asyncio.sleep(0.2)


async def measure(store: Store, first: VirtualHost, host: VirtualHost) -> float:
    """The node is declared before its host is there, so that the leader has something for it at once."""
    await qm(first, "apply", "-f", "-", stdin=NODE.format(name=host.name).encode())
    given, name = await token(first), f"local-default.{host.name}"
    async with TaskGroup() as group:
        began = time.perf_counter()
        group.start(join(host, given))
        while not await is_done(store, name):
            require(time.perf_counter() - began < PATIENCE_S, f"{name} is not done after {PATIENCE_S:.0f} s")
            await asyncio.sleep(0.02)
        ended = time.perf_counter()
    return ended - began


async def is_done(store: Store, name: str) -> bool:
    try:
        return (await store.get(Assignment, name, "default")).status.state == SUCCEEDED
    except NotFoundError:
        return False
