"""A modelled GlusterFS: hosts with glusterd, pools, volumes, bricks, what is to be healed; it answers as gluster does.

The model keeps what matters to whoever manages a pool: who knows whom, which changes are refused and with which words,
which copies are behind, and that a directory is a brick only once.
`FakeGluster.commands(address, …)` is the gluster of one host.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from quartermaster.backends.glusterfs.daemon import DAEMON, SOCKET, SOCKET_DIRECTORY
from quartermaster.backends.glusterfs.facts import BRICK_MARK
from quartermaster.backends.glusterfs.root_agent import ROOT_VERSION
from quartermaster.host.commands import Command, Result
from quartermaster.host.fake import FakeCommands, FakeMachine, Faults
from quartermaster.host.fake.machine import ROOT
from quartermaster.host.mountinfo import covering

VERSION = "10.3"
FOREIGN = "glusterd.service"  # one that somebody else runs: no daemon of ours has that name
_MARK = ".glusterfs/volume-id"


class FakeBrick(msgspec.Struct):
    address: str
    path: str
    runs: bool = False
    behind: int = 0  # entries that its copy lacks
    complete: bool = True  # holds everything that was ever written and healed to it
    starts: int = 0  # of its process
    stuck: int = 0  # the process of the glusterd that takes it for one that is being started
    rooted: bool = True  # its root was healed: of an erasure-coded volume nobody counts before that what it lacks

    @property
    def name(self) -> str:
        return f"{self.address}:{self.path}"


class FakeVolume(msgspec.Struct):
    name: str
    id: str
    width: int
    data: int  # parts that hold data, of an erasure-coded one
    arbiter: bool
    bricks: list[FakeBrick]
    options: dict[str, str] = {}
    started: bool = False
    limit: int = 0
    written: int = 0  # entries
    split: list[str] = []  # files whose copies contradict each other
    mounts: int = 0  # by hand
    changing: bool = False  # by somebody else, whenever all volumes are looked at

    def sets(self) -> list[list[FakeBrick]]:
        return [self.bricks[at : at + self.width] for at in range(0, len(self.bricks), self.width)]


class FakePool(msgspec.Struct):
    members: list[str]  # addresses
    volumes: dict[str, FakeVolume] = {}


class RefusedByGlusterError(Exception):
    """In the words of gluster."""


class FakeGluster:
    """All hosts of a modelled network. `cut` are those that nobody reaches."""

    def __init__(self) -> None:
        self.machines: dict[str, FakeMachine] = {}
        self.cut: set[str] = set()
        self.commands_run: list[tuple[str, tuple[str, ...]]] = []
        self._pools: list[FakePool] = []
        self._made = 0

    def commands(self, address: str, machine: FakeMachine, faults: Faults) -> FakeCommands:
        from quartermaster.backends.glusterfs.fake_answers import answer

        self.machines[address] = machine
        machine.files[ROOT.number, f"{SOCKET_DIRECTORY}/{SOCKET}"] = b""  # one is left behind by whoever was killed
        found = FakeCommands(faults)

        def handle(command: Command) -> Result:
            self.commands_run.append((address, command.argv))
            return answer(self, address, command.argv)

        found.handle("gluster", handler=handle)
        return found

    def uuid(self, address: str) -> str:
        return str(uuid5(NAMESPACE_URL, f"glusterd/{address}"))

    def pool_of(self, address: str) -> FakePool:
        found = next((pool for pool in self._pools if address in pool.members), None)
        if found is None:
            found = FakePool([address])
            self._pools.append(found)
        return found

    def runs(self, address: str) -> bool:
        """Whether its glusterd lives."""
        machine = self.machines.get(address)
        found = [machine.processes.get(name) for name in (DAEMON, FOREIGN)] if machine is not None else []
        return any(process is not None and process.lives for process in found)

    def reaches(self, one: str, other: str) -> bool:
        return self.runs(other) and (one == other or (one not in self.cut and other not in self.cut))

    # What a person or a program does to a pool.

    def probe(self, asking: str, address: str) -> None:
        if not self.reaches(asking, address):
            raise RefusedByGlusterError(f"Probe returned with Transport endpoint is not connected ({address})")
        mine, other = self.pool_of(asking), self.pool_of(address)
        if mine is other:
            return
        if len(other.members) > 1 or other.volumes:
            raise RefusedByGlusterError(
                f"{address} is either already part of another cluster or having volumes configured"
            )
        self._pools.remove(other)
        mine.members.append(address)

    def detach(self, asking: str, address: str, *, force: bool) -> None:
        pool = self.pool_of(asking)
        if address not in pool.members:
            raise RefusedByGlusterError(f"{address} is not part of cluster")
        if any(brick.address == address for volume in pool.volumes.values() for brick in volume.bricks):
            raise RefusedByGlusterError(f"Peer {address} hosts one or more bricks.")
        if not force and not all(self.reaches(asking, member) for member in pool.members if member != address):
            raise RefusedByGlusterError("One of the peers is probably down. Check with 'peer status'")
        pool.members.remove(address)
        self._pools.append(FakePool([address]))

    def create(self, asking: str, name: str, layout: tuple[int, int, bool], bricks: Sequence[str]) -> None:
        pool = self.pool_of(asking)
        if name in pool.volumes:
            raise RefusedByGlusterError(f"Volume {name} already exists")
        self._refuse_absent(asking, pool, [brick.partition(":")[0] for brick in bricks])
        for brick in bricks:
            self._refuse_used(brick)
        self._made += 1
        width, data, arbiter = layout
        identity = str(uuid5(NAMESPACE_URL, f"volume/{name}/{self._made}"))
        made = [self._make_brick(brick, identity) for brick in bricks]
        pool.volumes[name] = FakeVolume(name, identity, width, data, arbiter, made, {"nfs.disable": "on"})

    def start(self, asking: str, name: str, *, force: bool) -> None:
        volume = self.volume(asking, name)
        if volume.started and not force:
            raise RefusedByGlusterError(f"Volume {name} already started")
        volume.started = True
        self.settle()

    def stop(self, asking: str, name: str) -> None:
        volume = self.volume(asking, name)
        if not volume.started:
            raise RefusedByGlusterError(f"Volume {name} is not in the started state")
        volume.started = False
        for brick in volume.bricks:
            brick.runs = False

    def delete(self, asking: str, name: str) -> None:
        pool, volume = self.pool_of(asking), self.volume(asking, name)
        if volume.started:
            raise RefusedByGlusterError(f"Volume {name} has been started.Volume needs to be stopped before deletion.")
        if not all(self.reaches(asking, member) for member in pool.members):
            raise RefusedByGlusterError("Some of the peers are down")
        del pool.volumes[name]

    def set_options(self, asking: str, name: str, options: dict[str, str]) -> None:
        volume = self.volume(asking, name)
        if any(one.startswith("features.") and one.endswith("-timeout") for one in options) and not volume.limit:
            raise RefusedByGlusterError("Quota is disabled, please enable quota")
        volume.options |= options

    def enable_quota(self, asking: str, name: str) -> None:
        volume = self.volume(asking, name)
        if volume.options.get("features.quota") == "on":
            raise RefusedByGlusterError(f"Quota is already enabled on volume {name}")
        if not volume.started:
            raise RefusedByGlusterError(f"Volume is stopped, start volume before executing quota command on {name}")
        volume.options |= {"features.quota": "on"}

    def limit(self, asking: str, name: str, size: int) -> None:
        volume = self.volume(asking, name)
        if volume.options.get("features.quota") != "on":
            raise RefusedByGlusterError(f"Quota is disabled on volume {name}")
        volume.limit = size

    def replace_brick(self, asking: str, name: str, old: str, new: str) -> None:
        volume, pool = self.volume(asking, name), self.pool_of(asking)
        position = next((at for at, brick in enumerate(volume.bricks) if brick.name == old), None)
        if position is None:
            raise RefusedByGlusterError(f"brick: {old} does not exist in volume: {name}")
        if not volume.started:
            raise RefusedByGlusterError(f"volume: {name} is not started")
        if volume.width == 1:
            raise RefusedByGlusterError("replace-brick is not permitted on distribute only volumes.")
        self._refuse_absent(asking, pool, [new.partition(":")[0]])
        self._refuse_used(new)
        made = self._make_brick(new, volume.id)
        made.behind, made.complete = volume.written, volume.written == 0
        made.rooted = made.complete or not volume.data
        volume.bricks[position] = made
        self.settle()

    def add_brick(self, asking: str, name: str, new: str) -> None:
        volume = self.volume(asking, name)
        self._refuse_absent(asking, self.pool_of(asking), [new.partition(":")[0]])
        self._refuse_used(new)
        volume.bricks.append(self._make_brick(new, volume.id))
        self.settle()

    def remove_brick(self, asking: str, name: str, old: str) -> None:
        """By force: what is in it is not moved elsewhere."""
        volume = self.volume(asking, name)
        left = [brick for brick in volume.bricks if brick.name != old]
        if len(left) == len(volume.bricks):
            raise RefusedByGlusterError(f"Incorrect brick {old} for volume {name}")
        if not left:
            raise RefusedByGlusterError("Deleting all the bricks of the volume is not allowed")
        volume.bricks = left

    def volume(self, asking: str, name: str) -> FakeVolume:
        found = self.pool_of(asking).volumes.get(name)
        if found is None:
            raise RefusedByGlusterError(f"Volume {name} does not exist")
        return found

    # What happens by itself, or to it.

    def write(self, name: str, entries: int = 1) -> bool:
        """Whether a writer somewhere in the pool could write: a majority of each set took it."""
        volume = next(pool.volumes[name] for pool in self._pools if name in pool.volumes)
        living = [[brick for brick in one if self._serves(brick)] for one in volume.sets()]
        least = volume.data or (1 if volume.width < 3 else volume.width // 2 + 1)
        if not volume.started or any(len(one) < least for one in living):
            return False
        volume.written += entries
        self._show_roots(volume)
        for brick in volume.bricks:
            if not self._serves(brick):
                brick.behind += entries
                brick.complete = False
        return True

    def settle(self, *, healing: bool = False) -> None:
        """glusterd starts the bricks that can run; with `healing` those that are behind catch up from whole ones."""
        for pool in self._pools:
            for volume in pool.volumes.values():
                for brick in volume.bricks:
                    ran, brick.runs = brick.runs, self._may_run(volume, brick)
                    brick.starts += brick.runs and not ran
                for one in volume.sets() if healing else ():
                    sources = [brick for brick in one if self._serves(brick) and brick.complete]
                    for brick in one if len(sources) >= max(1, volume.data) else ():
                        if self._serves(brick) and brick.rooted:
                            brick.behind, brick.complete = 0, True
                        elif self._serves(brick):
                            brick.rooted = True
                    self._show_roots(volume)

    def is_lost(self, name: str) -> bool:
        """Whether something that was written is nowhere any more."""
        volume = next((pool.volumes[name] for pool in self._pools if name in pool.volumes), None)
        if volume is None:
            return True
        whole = [sum(brick.complete and self._is_there(brick) for brick in one) for one in volume.sets()]
        return any(count < max(1, volume.data) for count in whole)

    def _serves(self, brick: FakeBrick) -> bool:
        return brick.runs and brick.address not in self.cut and self.runs(brick.address) and self._is_there(brick)

    def _may_run(self, volume: FakeVolume, brick: FakeBrick) -> bool:
        process = self.machines[brick.address].processes.get(DAEMON)
        is_stuck = brick.stuck and process is not None and process.pid == brick.stuck
        return volume.started and not is_stuck and self.runs(brick.address) and self._is_there(brick)

    def _is_there(self, brick: FakeBrick) -> bool:
        machine = self.machines[brick.address]
        number, path = _place(machine, brick.path)
        on_disk = number == ROOT.number or any(disk.number == number for disk in machine.disks.values())
        return on_disk and (number, f"{path}/{_MARK}") in machine.files

    def _refuse_absent(self, asking: str, pool: FakePool, addresses: Sequence[str]) -> None:
        for address in addresses:
            if address not in pool.members:
                raise RefusedByGlusterError(f"Host {address} is not in 'Peer in Cluster' state")
            if not self.reaches(asking, address):
                raise RefusedByGlusterError(f"Host {address} not connected")

    def _refuse_used(self, brick: str) -> None:
        address, _, path = brick.partition(":")
        machine = self.machines[address]
        number, _ = _place(machine, path)
        if (number, f"{path}/{_MARK}") in machine.files:
            raise RefusedByGlusterError(f"{path} is already part of a volume")

    def _make_brick(self, brick: str, volume: str) -> FakeBrick:
        address, _, path = brick.partition(":")
        machine = self.machines[address]
        number, _ = _place(machine, path)
        machine.directories[number, path] = None
        machine.files[number, f"{path}/{_MARK}"] = volume.encode()
        machine.attributes[number, path] = {BRICK_MARK: UUID(volume).bytes}
        return FakeBrick(address, path)

    def _show_roots(self, volume: FakeVolume) -> None:
        """Something is in them."""
        for brick in volume.bricks if volume.data and volume.written else ():
            if brick.rooted and self._serves(brick):
                machine = self.machines[brick.address]
                machine.attributes[_place(machine, brick.path)][ROOT_VERSION] = (1).to_bytes(8) + bytes(8)


def _place(machine: FakeMachine, path: str) -> tuple[str, str]:
    mount = covering(tuple(machine.mounts), path) or ROOT
    return mount.number, path
