"""The demo as root: three virtual hosts become a GlusterFS cluster, one dies, a fourth takes its place, files stay."""

import json
from collections.abc import Awaitable, Callable

from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.orchestration.timings import Timings
from quartermaster.testing.lab import Lab, VirtualHost
from tools.demo_tour import EXAMPLES, Tour

Holds = Callable[[], Awaitable[bool]]

FILES = EXAMPLES / "06-glusterfs"
# Who watches a demo is in a hurry: by default changes are merged for 5 s, and a host may be silent for 30.
HURRIED = Timings(debounce_s=0.0, heartbeat_s=1.0, unhealthy_after_s=4.0)
MOUNTED = "/mnt/data"
SCRATCH, MOUNTED_SCRATCH = "/var/lib/scratch", "/mnt/scratch"
GLUSTERFS, LOCAL = "glusterfs-default", "local-default"
WRITE = f"cd {MOUNTED} && for n in 1 2 3; do head -c 8M /dev/urandom > file$n; done && sha256sum file* > sums && sync"
WRITE_MORE = f"cd {MOUNTED} && head -c 8M /dev/urandom > file4 && sha256sum file4 >> sums && sync"
READ = f"cd {MOUNTED} && sha256sum --check sums"
OK = ": OK"


async def three_hosts(tour: Tour, lab: Lab) -> None:
    first, second, third = lab.hosts
    for host in lab.hosts:
        hurry(host)
    async with tour.timed("three hosts, one cluster, etcd on all three"):
        await come_together(tour, first, second, third)
    async with tour.timed("six blank disks become a GlusterFS cluster, ONLINE"):
        tour.say("Each host declares its disks: a file system on each, glusterd on every host, one pool of them.")
        await tour.on(first, "apply", "-f", FILES / "nodes.yaml")
        await tour.follow(first, "status", "--wait")
        await tour.until("six disks serve, nothing is missing", is_whole(tour, first, 3))
        await tour.on(first, "status")
    async with tour.timed("a claim, its volume in three copies, mounted, written to"):
        await use_a_volume(tour, first, second)
    async with tour.timed("a directory of each host beside it, a volume on one of them"):
        await use_a_directory(tour, first, second, third)
    async with tour.timed("a host killed; files read and written meanwhile"):
        await lose(tour, first, second, third)
    async with tour.timed("a fourth host in its place, every copy whole again"):
        fourth = await replace(tour, lab, third)
    async with tour.timed("files read on the new host"):
        await read_again(tour, second, fourth)


async def come_together(tour: Tour, first: VirtualHost, *others: VirtualHost) -> None:
    tour.say("h1 begins a cluster: an etcd of its own, certificates, a leader.")
    await tour.on(first, "up")
    tour.say("The others join it. A token is used once, and a host may write nothing but its own objects.")
    for host in others:
        await join(tour, first, host)
    await tour.until(f"etcd has grown from one member to three: {names(first, *others)}", etcd_on(tour, first, *others))


async def join(tour: Tour, first: VirtualHost, host: VirtualHost) -> None:
    token = (await tour.on(first, "token", "create", quiet=True)).split()[-1]
    await tour.on(host, "join", hidden=token)


async def use_a_volume(tour: Tour, first: VirtualHost, second: VirtualHost) -> None:
    tour.say("A claim says how much. Its volume has a copy on each host, and any host may mount it.")
    await tour.on(first, "apply", "-f", FILES / "claim.yaml")
    for host in (first, second):
        await tour.on(host, "volume", "mount", "data", MOUNTED)
    await tour.shell(first, f"df -h --output=size,target {MOUNTED}")
    await tour.shell(first, WRITE)
    await tour.on(first, "volume", "list")


async def use_a_directory(tour: Tour, first: VirtualHost, second: VirtualHost, third: VirtualHost) -> None:
    tour.say(
        "The same hosts offer a directory each, without a storage system. A volume is made where it is first used."
    )
    for host in (first, second, third):
        await tour.shell(host, f"mkdir {SCRATCH}")
    await tour.on(first, "apply", "-f", FILES / "scratch.yaml")
    await tour.on(second, "volume", "mount", "scratch", MOUNTED_SCRATCH)
    await tour.shell(second, f"echo 'nobody else needs this' > {MOUNTED_SCRATCH}/note")
    await tour.until("three directories serve", is_whole(tour, first, 3, LOCAL))
    await tour.on(first, "volume", "list")


async def lose(tour: Tour, first: VirtualHost, second: VirtualHost, third: VirtualHost) -> None:
    tour.say("h3 dies: every process on it is killed, and it does not come back. It held a copy and a member of etcd.")
    await third.kill()
    sums = await tour.shell(second, READ)
    tour.check(sums.count(OK) == 3, "what was written on h1 is read on h2")
    await tour.shell(second, WRITE_MORE)
    heard = (
        f"nothing was heard of it for {HURRIED.unhealthy_after_s:.0f} s (by default {Timings().unhealthy_after_s:.0f})"
    )
    await tour.until(f"h3 is missed: {heard}", state_is_not(tour, first, third, "Ready"))
    await tour.on(first, "status", "--no-wait")


async def replace(tour: Tour, lab: Lab, third: VirtualHost) -> VirtualHost:
    first, second = lab.hosts[0], lab.hosts[1]
    tour.say("A fourth host is plugged in.")
    fourth = await lab.add_host("h4", disks=2, disk_size="2Gi")
    hurry(fourth)
    await join(tour, first, fourth)
    await tour.shell(fourth, f"mkdir {SCRATCH}")
    await tour.on(first, "apply", "-f", FILES / "fourth.yaml")
    await tour.until("h4 is in the pool", node_is_ready(tour, first, fourth))
    tour.say("Somebody says that h3 is gone for good. What was on it is given up by name, and never by itself.")
    for node in (third.name, f"scratch-{third.name}"):
        await tour.on(first, "node", "remove", node, "--lost", "--yes")
    await tour.on(first, "delete", "host", third.name, "--yes")
    await tour.until("healed: h4 has the copy that h3 had, and every copy is whole", is_whole(tour, first, 3))
    await tour.until("three directories serve again", is_whole(tour, first, 3, LOCAL))
    await tour.on(first, "status")
    await tour.until(
        f"etcd has three members again: {names(first, second, fourth)}", etcd_on(tour, first, second, fourth)
    )
    return fourth


async def read_again(tour: Tour, second: VirtualHost, fourth: VirtualHost) -> None:
    tour.say("What was written before and after the loss, read on h2 and on the host that is new.")
    await tour.on(fourth, "volume", "mount", "data", MOUNTED)
    for host in (second, fourth):
        sums = await tour.shell(host, READ)
        tour.check(sums.count(OK) == 4, f"on {host.name} all files have the checksums with which they were written")
    note = await tour.shell(second, f"cat {MOUNTED_SCRATCH}/note")
    tour.check("nobody else" in note, "what was on h2 alone is there as it was")


def hurry(host: VirtualHost) -> None:
    """Into the file that `qm up` and `qm join` keep the settings of a host in."""
    write_settings(host.state, HostSettings(name=host.name, timings=HURRIED))


def names(*hosts: VirtualHost) -> str:
    return ", ".join(host.name for host in hosts)


def etcd_on(tour: Tour, first: VirtualHost, *others: VirtualHost) -> Holds:
    wanted = sorted(host.name for host in (first, *others))

    async def holds() -> bool:
        seats = json.loads(await tour.read(first, "get", "cm", MEMORY_NAME, "-o", "jsonpath={.data.members}"))["seats"]
        return sorted(seat["host"] for seat in seats if seat["phase"] == "serving") == wanted

    return holds


def node_is_ready(tour: Tour, first: VirtualHost, host: VirtualHost) -> Holds:
    async def holds() -> bool:
        return await tour.read(first, "get", "storagenode", host.name, "-o", "jsonpath={.status.state}") == "Ready"

    return holds


def is_whole(tour: Tour, first: VirtualHost, nodes: int, cluster: str = GLUSTERFS) -> Holds:
    """So many nodes, all of them ready, and nothing that is missing or being healed."""

    async def holds() -> bool:
        found = json.loads(await tour.read(first, "get", "storagestatus", cluster, "-o", "json"))["status"]
        conditions = {one["type"]: one["status"] for one in found.get("conditions", ())}
        return found.get("readyCount") == found.get("nodeCount") == nodes and conditions.get("Degraded") == "False"

    return holds


def state_is_not(tour: Tour, first: VirtualHost, host: VirtualHost, state: str) -> Holds:
    async def holds() -> bool:
        return await tour.read(first, "get", "host", host.name, "-o", "jsonpath={.status.state}") != state

    return holds
