"""The demo as root: three virtual hosts become a cluster with an etcd of its own, a fourth comes, one is lost for good.

Volumes of type `local` are on one host each, so the host that is lost is one that holds none: what a volume survives by
copies comes with storage systems that make them.
"""

import json
from collections.abc import Awaitable, Callable

from quartermaster.backends.etcd.memory import MEMORY_NAME
from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.quantity import Amount
from quartermaster.testing.lab import Lab, VirtualHost
from tools.demo_tour import EXAMPLES, Tour

Holds = Callable[[], Awaitable[bool]]

FILES = EXAMPLES / "05-three-hosts"
# Who watches a demo is in a hurry: by default changes are merged for 5 s, and a host may be silent for 30.
HURRIED = Timings(debounce_s=0.0, heartbeat_s=1.0, unhealthy_after_s=4.0)
MOUNTED = "/mnt/data"
WRITE = f"cd {MOUNTED} && for n in 1 2 3; do head -c 8M /dev/urandom > file$n; done && sha256sum file* > sums && sync"
READ = f"cd {MOUNTED} && sha256sum --check sums"


async def three_hosts(tour: Tour, lab: Lab) -> None:
    first, second, third = lab.hosts
    for host in lab.hosts:
        hurry(host)
    async with tour.timed("three hosts, one cluster, etcd on all three"):
        await come_together(tour, first, second, third)
    async with tour.timed("six disks ONLINE"):
        tour.say("Each host declares its disks. Only blank ones are ever touched.")
        await tour.on(first, "apply", "-f", FILES / "cluster.yaml")
        await tour.until("three nodes are ready", ready_nodes(tour, first, 3))  # ONLINE it is with the first
        await tour.on(first, "status", "--wait")
    async with tour.timed("a volume where it is first used, written to"):
        await use_a_volume(tour, first, second, third)
    before = await capacity(tour, first)
    async with tour.timed("a fourth host, ONLINE"):
        fourth = await grow(tour, lab)
    after = await capacity(tour, first)
    tour.check(after > before, f"capacity was {gib(before)} with three hosts, and is {gib(after)} with four")
    async with tour.timed("a host lost for good, and replaced"):
        await lose(tour, first, second, third, fourth)
    left = await capacity(tour, first)
    tour.check(
        before * 0.99 < left < after, f"capacity is {gib(left)}, on {', '.join(h.name for h in lab.hosts if h.up)}"
    )
    tour.say("The volume is where it was, on h2, and so is everything in it.")
    sums = await tour.shell(second, READ)
    tour.check(sums.count(": OK") == 3, "all files have the checksums with which they were written")


async def come_together(tour: Tour, first: VirtualHost, *others: VirtualHost) -> None:
    tour.say("h1 begins a cluster: an etcd of its own, certificates, a leader.")
    await tour.on(first, "up")
    tour.say("The others join it. A token is used once, and a host may write nothing but its own objects.")
    for host in others:
        token = (await tour.on(first, "token", "create", quiet=True)).split()[-1]
        await tour.on(host, "join", hidden=token)
    await tour.until(f"etcd has grown from one member to three: {names(first, *others)}", etcd_on(tour, first, *others))


async def use_a_volume(tour: Tour, first: VirtualHost, second: VirtualHost, third: VirtualHost) -> None:
    tour.say("A claim says how much. Its volume is made on the host that first mounts it.")
    await tour.on(first, "apply", "-f", FILES / "claim.yaml")
    await tour.on(second, "volume", "mount", "data", MOUNTED)
    await tour.shell(second, WRITE)
    said = await tour.refused(third, "volume", "mount", "data", MOUNTED)
    tour.check("its volume is on h2" in said, "another host is told where it is")
    await tour.on(first, "volume", "list")


async def grow(tour: Tour, lab: Lab) -> VirtualHost:
    tour.say("A fourth host is plugged in.")
    fourth = await lab.add_host("h4", disks=2, disk_size="2Gi")
    hurry(fourth)
    first = lab.hosts[0]
    token = (await tour.on(first, "token", "create", quiet=True)).split()[-1]
    await tour.on(fourth, "join", hidden=token)
    await tour.on(first, "apply", "-f", FILES / "fourth.yaml")
    await tour.until("four nodes are ready", ready_nodes(tour, first, 4))
    await tour.on(first, "status")
    return fourth


async def lose(tour: Tour, first: VirtualHost, second: VirtualHost, third: VirtualHost, fourth: VirtualHost) -> None:
    tour.say(
        "h3 dies: every process on it is killed, and it does not come back. It held a member of etcd, and no volume."
    )
    await third.kill()
    heard = (
        f"nothing was heard of it for {HURRIED.unhealthy_after_s:.0f} s (by default {Timings().unhealthy_after_s:.0f})"
    )
    await tour.until(f"h3 is missed: {heard}", state_is_not(tour, first, third, "Ready"))
    await tour.on(first, "status", "--no-wait")
    tour.say("Somebody says that it is gone for good. What it was is given up by name, and never by itself.")
    await tour.on(first, "node", "remove", "h3", "--lost", "--yes")
    await tour.on(first, "delete", "host", "h3", "--yes")
    await tour.until(
        f"etcd has three members again: {names(first, second, fourth)}", etcd_on(tour, first, second, fourth)
    )
    await tour.on(first, "status", "--wait")


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


def ready_nodes(tour: Tour, first: VirtualHost, count: int) -> Holds:
    async def holds() -> bool:
        shown = await tour.read(first, "get", "storagestatus", "-o", "jsonpath={.items[*].status.readyCount}")
        return shown == str(count)

    return holds


def state_is_not(tour: Tour, first: VirtualHost, host: VirtualHost, state: str) -> Holds:
    async def holds() -> bool:
        return await tour.read(first, "get", "host", host.name, "-o", "jsonpath={.status.state}") != state

    return holds


async def capacity(tour: Tour, first: VirtualHost) -> int:
    path = "jsonpath={.status.capacity.total}"
    return Amount.of(await tour.read(first, "get", "storagestatus", "local-default", "-o", path)).bytes


def gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
