"""A modelled GlusterFS cluster under the real plan and agents, round by round."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.backends.glusterfs.fake import FakeGluster
from quartermaster.planning.cluster import ClusterPlan
from quartermaster.resources.orchestration import assignment_name
from tests.backends.conformance.bench import Bench
from tests.backends.conformance.subjects import SUBJECTS

GIB = 1 << 30
VOLUME = "pvc-1"


class Cluster:
    """Three nodes with a volume that was written to."""

    def __init__(self, directory: Path) -> None:
        subject = next(one for one in SUBJECTS if one.type == "glusterfs")
        self.bench = Bench(subject, directory)
        self.gluster = self.bench.world
        assert isinstance(self.gluster, FakeGluster)

    async def begin(self) -> None:
        self.bench.add("h1", "h2", "h3")
        await self.bench.settle()
        self.bench.online = True
        await self.bench.make(VOLUME, GIB)
        await self.bench.work(again=True)
        assert self.gluster.write(VOLUME, 7)

    async def round(self, *, healing: bool = True) -> ClusterPlan:
        plan = await self.bench.plan()
        self.bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            self.bench.ask(desired)
        await self.bench.work(again=True)
        self.gluster.settle(healing=healing)
        return plan

    async def rounds(self, count: int = 8, *, healing: bool = True) -> ClusterPlan:
        for _ in range(count):
            await self.round(healing=healing)
        return await self.bench.plan()

    def lose(self, host: str, *, for_good: bool = True) -> None:
        self.bench.silent.append(host)
        if for_good:
            self.bench.lost.append(host)
        self.bench.machines[host].reboot()

    def bricks(self) -> list[str]:
        volume = self.gluster.volume(self.bench.address("h1"), VOLUME)
        names = {self.bench.address(name): name for name in self.bench.machines}
        return [names[brick.address] for brick in volume.bricks]

    def come_back(self, host: str) -> None:
        self.bench.silent.remove(host)
        if host in self.bench.lost:
            self.bench.lost.remove(host)


async def ask_for_its_end(cluster: Cluster, name: str = VOLUME) -> str:
    """Returns the name of the assignment by which it is deleted."""
    view = await cluster.bench.view()
    placed = next(volume for volume in view.volumes if volume.name == name)
    volume = Volume(name, placed.size, Placement(placed.hosts, dict(placed.details)))
    desired = cluster.bench.backend.volumes().desired_now(volume, view)
    cluster.bench.ask(replace(desired, config=None))
    return assignment_name(desired.agent, desired.host, name)


async def let_miss_something(cluster: Cluster, host: str) -> None:
    """It was away while something was written, and is back; nothing is healed yet."""
    cluster.lose(host, for_good=False)
    await cluster.rounds(2, healing=False)
    assert cluster.gluster.write(VOLUME, 5)
    cluster.come_back(host)
    await cluster.rounds(3, healing=False)


def pull_disk(cluster: Cluster, host: str) -> None:
    machine = cluster.bench.machines[host]
    device = machine.pull_disk("/dev/vdb")
    machine.mounts[:] = [mount for mount in machine.mounts if mount.number != device.number]
