"""A modelled GlusterFS on modelled hosts: glusterds that know what they were told, bricks, copies that are healed.

Each host has a glusterd of its own with its own idea of the pool. They talk while they reach each other, tell each
other what they missed, and notice late that somebody was cut off. `tick` is what happens by itself. Commands are in
`verbs`; what is simplified is told in docs/design/glusterfs-model.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from quartermaster.backends.glusterfs.daemon import DAEMON
from quartermaster.backends.glusterfs.facts import BRICK_MARK
from quartermaster.backends.glusterfs.root_agent import ROOT_VERSION
from quartermaster.host.fake import FakeMachine, FakeProcess
from quartermaster.host.fake.machine import ROOT
from quartermaster.support import entropy
from quartermaster.testing.simulation import record

from .lineage import FILES, Copies, Copy, blame_new, good, heal, is_at_rest, root, write
from .network import CLIENT, Network
from .records import ACCEPTED, IN_CLUSTER, REJECTED, BrickRecord, Glusterd, PeerRecord, VolumeRecord

NOTICE_S = 12.0  # until a glusterd gives up one that it cannot reach any more
ROOTED = 0.25  # the chance that the root of a new brick of an erasure-coded volume is healed, in one tick
HEALED = 0.3  # the chance that a file which can be healed is, in one tick
TICK_S = 1.0
PING_TIMEOUT, PING_TIMEOUT_S = "network.ping-timeout", 42.0
BEFRIENDED = 0.6  # the chance that who was accepted is in the cluster, in one tick
_FILES = tuple(f"file{number}" for number in range(FILES))
_MARK = ".glusterfs/volume-id"
_INDEX = ".glusterfs/indices/xattrop"
_NOBODY = PeerRecord("", "")


class _Start(msgspec.Struct, frozen=True):
    """Of the process of a glusterd."""

    pid: int
    uuid: str
    ready_at: float


class GlusterModel:
    def __init__(self) -> None:
        self.network = Network()
        self.machines: dict[str, FakeMachine] = {}  # by address
        self.daemons: dict[str, Glusterd] = {}  # by UUID
        self.volumes: dict[str, VolumeRecord] = {}  # by id: as whoever changed them last has them
        self.newest: dict[str, dict[str, int]] = {}  # id → file → the version that somebody was told to be written
        self.locks: dict[tuple[str, str], str] = {}  # (UUID, volume) → UUID of who has it
        self.copies: dict[tuple[str, str, str], Copy] = {}  # (address, number of the file system, path)
        self.numbers: dict[tuple[str, str], str] = {}  # (address, path) → the number: no path is a brick twice
        self.delicate = 0  # bricks that are being replaced at this moment where no other one may go meanwhile
        self.users: dict[str, None] = {}  # volumes that somebody has mounted by hand
        self.writes = 0
        self.heals = 0
        self.healing = HEALED
        self._bricks: dict[tuple[str, str], int] = {}  # (address, path) → the process that runs it
        self._processes = 0
        self._stuck: dict[tuple[str, str], int] = {}  # (address, path) → the process of a glusterd that starts it never
        self._links: dict[tuple[str, str], None] = {}  # pairs of UUIDs that have a connection, as they believe
        self._starts: dict[str, _Start] = {}
        self._shown: dict[tuple[str, str], tuple[str, int]] = {}  # (address, path) → file system, links that it keeps

    # Who lives, and who reaches whom.

    def running(self, address: str) -> Glusterd | None:
        """The glusterd that answers there."""
        machine = self.machines.get(address)
        process = machine.processes.get(DAEMON) if machine is not None else None
        if process is None or not process.lives:
            return None
        start = self._starts.get(address)
        if start is None or start.pid != process.pid:
            start = self._begin(address, process)
        return self.daemons[start.uuid] if _now() >= start.ready_at else None

    def linked(self, one: Glusterd, other: Glusterd) -> bool:
        alive = self.running(one.address) is one and self.running(other.address) is other
        return one is other or (alive and _pair(one, other) in self._links)

    def connected(self, one: Glusterd) -> list[Glusterd]:
        """The peers that it has a connection to, as it believes."""
        known = [self.daemons[uuid] for uuid in one.peers if uuid in self.daemons]
        return [peer for peer in known if one.peers[peer.uuid].state == IN_CLUSTER and self.linked(one, peer)]

    def hangs(self, one: Glusterd) -> bool:
        """Whether it waits for somebody who does not answer and is not given up yet."""
        return any(not self.network.reaches(one.address, peer.address) for peer in self.connected(one))

    def refusing(self, address: str) -> list[Glusterd]:
        """What its log tells of a glusterd that is refused: by whom."""
        refused = self.running(address)
        others = [daemon for one in self.machines if (daemon := self.running(one)) is not None] if refused else []
        return [one for one in others if refused and one.peers.get(refused.uuid, _NOBODY).state == REJECTED]

    def disputes(self, address: str) -> list[tuple[str, VolumeRecord]]:
        """And what those know of a volume otherwise, and not later: for that is taken over by whoever starts anew."""
        refused = self.running(address)
        return [
            (other.address, volume)
            for other in self.refusing(address)
            for volume in other.volumes.values()
            if refused is not None and (known := refused.volumes.get(volume.name)) is not None
            if known.version >= volume.version and known != volume
        ]

    def kill_bricks(self, address: str, paths: Iterable[str] | None = None) -> None:
        gone = list(paths) if paths is not None else [path for host, path in self._bricks if host == address]
        for path in gone:
            self._bricks.pop((address, path), None)

    def get_stuck(self, address: str, path: str) -> None:
        """Its glusterd never starts it again, and says that it does; the next one starts it."""
        process = self.machines[address].processes.get(DAEMON)
        if process is not None and process.lives and all(host != address for host, _ in self._stuck):
            self._stuck[address, path] = process.pid
            record("stuck", address, path)

    def _is_stuck(self, brick: BrickRecord) -> bool:
        process = self.machines[brick.address].processes.get(DAEMON)
        return process is not None and self._stuck.get((brick.address, brick.path)) == process.pid

    def brick_paths(self, address: str) -> list[str]:
        return [path for host, path in self._bricks if host == address]

    # What is on bricks.

    def copy_of(self, brick: BrickRecord) -> Copy | None:
        """What is in its directory, where that can be read."""
        machine = self.machines[brick.address]
        number = _number(machine, brick.path)
        present = number == ROOT.number or any(disk.number == number for disk in machine.disks.values())
        if not present or (number, brick.path) not in machine.directories:
            return None
        return self.copies.get((brick.address, number, brick.path))

    def holder(self, brick: BrickRecord) -> tuple[str, str]:
        """The address, and the number of the file system that it was made on."""
        return brick.address, self.numbers.get((brick.address, brick.path), "")

    def serves(self, brick: BrickRecord) -> bool:
        return self.runs(brick) and self.copy_of(brick) is not None

    def runs(self, brick: BrickRecord) -> bool:
        """Whether its process does."""
        return (brick.address, brick.path) in self._bricks

    def process_of(self, brick: BrickRecord) -> int:
        """Its number; 0 where none runs."""
        return self._bricks.get((brick.address, brick.path), 0)

    def answering(self, volume: VolumeRecord, positions: Iterable[int], asking: str = CLIENT) -> list[Copy | None]:
        """The copies of a set that somebody there gets an answer from."""
        bricks = [volume.bricks[at] for at in positions]
        return [
            self.copy_of(brick) if self.runs(brick) and self.network.reaches(asking, brick.address) else None
            for brick in bricks
        ]

    def is_used(self, address: str, path: str) -> bool:
        """A directory that was a brick once is never one again."""
        machine = self.machines[address]
        return (_number(machine, path), f"{path}/{_MARK}") in machine.files

    def can_hold(self, address: str, path: str) -> bool:
        """Whether a directory can be made there: its disk is mounted and answers."""
        machine = self.machines[address]
        number = _number(machine, path)
        below = str(Path(path).parent)
        is_mount = any(mount.target == below for mount in machine.mounts)
        if number == ROOT.number:
            return (number, below) in machine.directories
        return is_mount and any(disk.number == number for disk in machine.disks.values())

    def make_brick(self, address: str, path: str, volume: str) -> None:
        machine = self.machines[address]
        number = _number(machine, path)
        machine.directories[number, path] = None
        machine.files[number, f"{path}/{_MARK}"] = volume.encode()
        machine.attributes[number, path] = {BRICK_MARK: volume.encode()}
        self.copies[address, number, path] = Copy(volume)
        self.numbers[address, path] = number

    def start_brick(self, daemon: Glusterd, volume: VolumeRecord, brick: BrickRecord) -> None:
        copy = self.copy_of(brick)
        wanted = volume.started and (daemon.quorate or not volume.needs_quorum)
        if brick.uuid == daemon.uuid and wanted and copy is not None and copy.volume == volume.id:
            self._run(brick)

    def _run(self, brick: BrickRecord) -> None:
        if not self.runs(brick) and not self._is_stuck(brick):
            self._processes += 1
            self._bricks[brick.address, brick.path] = self._processes

    def apply(self, daemon: Glusterd, volume: VolumeRecord | None, before: VolumeRecord | None) -> None:
        """A glusterd has another record of a volume now: its own bricks run accordingly."""
        kept = volume.bricks if volume is not None and volume.started else ()
        for brick in before.bricks if before is not None else ():
            if brick.uuid == daemon.uuid and brick not in kept:
                self._bricks.pop((brick.address, brick.path), None)
                self._stuck.pop((brick.address, brick.path), None)
        for brick in kept:
            if volume is not None:
                self.start_brick(daemon, volume, brick)

    def replaced(self, volume: VolumeRecord, position: int) -> None:
        """The others of the set say of the new brick that it lacks all there is."""
        members = volume.set_of(position)
        copies = self.answering(volume, members)
        new = self.copy_of(volume.bricks[position])
        files = self.written(volume, members)
        if volume.shape.data and new is not None:
            new.rooted = not files  # nobody says anything of it until its root is healed
        else:
            blame_new(copies, position - members.start, files)

    def files_of(self, volume: VolumeRecord, members: range) -> tuple[str, ...]:
        """A file is in one set."""
        if len(volume.bricks) == volume.shape.width:
            return _FILES
        return tuple(file for number, file in enumerate(_FILES) if self._home(volume, number) == members.start)

    def write(self, volume: VolumeRecord, number: int) -> bool:
        """Whether whoever has the volume mounted could write to one of its files."""
        members = volume.set_of(self._home(volume, number))
        file, newest = _FILES[number], self.newest[volume.id]
        copies = self.answering(volume, members)
        if not volume.started or self._is_awaited(volume, members):
            return False
        if not write(volume.shape, copies, file, newest.get(file, 0)):
            return False
        newest[file] = newest.get(file, 0) + 1
        self.writes += 1
        self._show_pending(volume)
        self._show_roots(volume, members, copies)
        return True

    def _is_awaited(self, volume: VolumeRecord, members: range) -> bool:
        """Whether nobody is told that something was written, for a brick that was cut off is not given up yet."""
        patience_s = float(volume.options.get(PING_TIMEOUT, PING_TIMEOUT_S))
        bricks = [volume.bricks[at] for at in members]
        cuts = [self.network.cut_since(CLIENT, brick.address) for brick in bricks if self.runs(brick)]
        return any(since is not None and _now() - since <= patience_s for since in cuts)

    def read(self, volume: VolumeRecord, number: int) -> bool:
        """Whether whoever has the volume mounted gets the newest version of one of its files."""
        copies = self.answering(volume, volume.set_of(self._home(volume, number)))
        found = good(volume.shape, copies, _FILES[number], self.newest[volume.id].get(_FILES[number], 0))
        return volume.started and sum(map(volume.shape.keeps_content, found)) >= volume.shape.least

    def _home(self, volume: VolumeRecord, number: int) -> int:
        """The first position of the set in which a file is, or is to be: a set that is added gets none of those that
        there are.
        """
        held = [at for at, brick in enumerate(volume.bricks) if self._stored(brick).get(_FILES[number])]
        return volume.set_of(held[0] if held else number * volume.shape.width % len(volume.bricks)).start

    def _stored(self, brick: BrickRecord) -> dict[str, int]:
        """The versions in its directory, be it that nobody can read them now."""
        copy = self.copies.get((*self.holder(brick), brick.path))
        return copy.versions if copy is not None else {}

    def is_moving(self, volume: VolumeRecord) -> bool:
        """Whether something is left in the brick that is to go."""
        return any(self._stored(brick) for brick in volume.bricks if brick.name == volume.leaving)

    # What happens by itself.

    def tick(self) -> None:
        daemons = [daemon for address in self.machines if (daemon := self.running(address)) is not None]
        self._connect(daemons)
        self._befriend(daemons)
        alive = {daemon.uuid: daemon for daemon in daemons}
        for daemon in daemons:
            self._hold_quorum(daemon, alive)
        for address, path in list(self._bricks):
            if self._copy_at(address, path) is None and entropy.source().random() < HEALED:
                del self._bricks[address, path]  # a brick looks after its disk, and ends when that is gone
        for volume in list(self.volumes.values()):
            self._heal(volume)
            if volume.leaving:
                self._move_out(volume)

    def _begin(self, address: str, process: FakeProcess) -> _Start:
        """Its process has been started: with the state that it finds, or as nobody yet."""
        uuid = _identity(process)
        daemon = self.daemons.setdefault(uuid, Glusterd(uuid, address))
        self._links = {pair: None for pair in self._links if uuid not in pair}
        self.locks = {held: owner for held, owner in self.locks.items() if uuid not in (held[0], owner)}
        daemon.quorate = not daemon.in_pool
        for volume in daemon.volumes.values():
            self.apply(daemon, volume, None)
        start = _Start(process.pid, uuid, _now() + entropy.source().uniform(0.3, 3.0))
        self._starts[address] = start
        record("glusterd", address, uuid)
        return start

    def _connect(self, daemons: list[Glusterd]) -> None:
        alive = {daemon.uuid for daemon in daemons}
        self._links = {pair: None for pair in self._links if pair[0] in alive and pair[1] in alive}
        for at, one in enumerate(daemons):
            for other in daemons[at + 1 :]:
                since, pair = self.network.cut_since(one.address, other.address), _pair(one, other)
                if since is not None:
                    if pair in self._links and _now() - since > NOTICE_S:
                        del self._links[pair]
                elif pair not in self._links and _knows(one, other) and _knows(other, one):
                    self._links[pair] = None
                    self.shake_hands(one, other)

    def _befriend(self, daemons: list[Glusterd]) -> None:
        """Who has just been accepted is connected, and not yet in the cluster."""
        for one in daemons:
            for peer in [peer for peer in one.peers.values() if peer.state == ACCEPTED]:
                other = self.running(peer.address)
                reached = other is not None and self.network.reaches(one.address, peer.address)
                if other is not None and reached and entropy.source().random() < BEFRIENDED:
                    one.peers[peer.uuid] = PeerRecord(peer.uuid, peer.address)
                    self.shake_hands(one, other)

    def shake_hands(self, one: Glusterd, other: Glusterd) -> None:
        """Each tells the other what that has missed."""
        for name in dict.fromkeys((*one.volumes, *other.volumes)):
            mine, theirs = one.volumes.get(name), other.volumes.get(name)
            if mine is not None and theirs is not None and mine.version == theirs.version and mine != theirs:
                one.peers[other.uuid] = PeerRecord(other.uuid, other.address, REJECTED)
                other.peers[one.uuid] = PeerRecord(one.uuid, one.address, REJECTED)
                record("rejected", one.address, other.address, name)
                return
            if theirs is not None and (mine is None or mine.version < theirs.version):
                one.volumes[name] = theirs
                self.apply(one, theirs, mine)
            elif mine is not None and (theirs is None or theirs.version < mine.version):
                other.volumes[name] = mine
                self.apply(other, mine, theirs)
        for teller, told in ((one, other), (other, one)):
            if teller.peers.get(told.uuid, _NOBODY).state == REJECTED:
                teller.peers[told.uuid] = PeerRecord(told.uuid, told.address)
            for uuid, peer in teller.peers.items():
                if uuid != told.uuid and uuid not in told.peers:
                    told.peers[uuid] = PeerRecord(uuid, peer.address)

    def link(self, one: Glusterd, other: Glusterd) -> None:
        self._links[_pair(one, other)] = None

    def unlink(self, one: Glusterd, uuid: str) -> None:
        """Who does not know a peer any more has no connection to it, and takes none from it."""
        self._links.pop((one.uuid, uuid) if one.uuid < uuid else (uuid, one.uuid), None)

    def _hold_quorum(self, daemon: Glusterd, alive: Mapping[str, Glusterd]) -> None:
        """Where most of a pool is out of reach, bricks of volumes that ask for it are ended."""
        members = [uuid for uuid, peer in daemon.peers.items() if peer.state == IN_CLUSTER]
        connected = [uuid for uuid in members if uuid in alive and _pair(daemon, alive[uuid]) in self._links]
        quorate = 1 + len(connected) > (1 + len(members)) // 2
        if quorate == daemon.quorate:
            return
        daemon.quorate = quorate
        for volume in daemon.volumes.values():
            own = [brick for brick in volume.bricks if brick.uuid == daemon.uuid]
            if volume.needs_quorum and not quorate:
                self.kill_bricks(daemon.address, [brick.path for brick in own])
            for brick in own if quorate else ():
                self.start_brick(daemon, volume, brick)

    def _heal(self, volume: VolumeRecord) -> None:
        if not volume.started or not self.newest[volume.id]:
            return
        for members in volume.sets:
            copies = self.answering(volume, members)
            if is_at_rest(copies):
                continue
            if any(copy is not None and not copy.rooted for copy in copies):
                if entropy.source().random() < ROOTED:
                    root(volume.shape, copies, self.written(volume, members))
                    self._show_roots(volume, members, copies)
                continue
            for file in self.files_of(volume, members):
                if entropy.source().random() < self.healing:
                    self.heals += heal(volume.shape, copies, file)
            self._show_roots(volume, members, copies)
        self._show_pending(volume)

    def _move_out(self, volume: VolumeRecord) -> None:
        """What is in the brick that is to go is moved to the youngest of the others."""
        old = next(brick for brick in volume.bricks if brick.name == volume.leaving)
        new = [brick for brick in volume.bricks if brick != old][-1]
        source, target = self.answering(volume, [volume.bricks.index(one) for one in (old, new)])
        if volume.started and source is not None and target is not None:
            target.versions.update(source.versions)
            source.versions.clear()

    def written(self, volume: VolumeRecord, members: range) -> list[str]:
        return [file for file in self.files_of(volume, members) if self.newest[volume.id].get(file)]

    def _show_roots(self, volume: VolumeRecord, members: range, copies: Copies) -> None:
        """The root of a brick has a version since something was made there, or healed."""
        if not volume.shape.data or not self.written(volume, members):
            return
        for at, copy in zip(members, copies, strict=True):
            if copy is not None and copy.rooted:
                brick = volume.bricks[at]
                machine = self.machines[brick.address]
                known = machine.attributes.setdefault((_number(machine, brick.path), brick.path), {})
                known[ROOT_VERSION] = (1).to_bytes(8) + bytes(8)

    def _show_pending(self, volume: VolumeRecord) -> None:
        """A brick keeps a link for every entry that another one lacks."""
        for brick in volume.bricks:
            copy = self.copy_of(brick)
            machine = self.machines[brick.address]
            number, place = _number(machine, brick.path), (brick.address, brick.path)
            if copy is None or self._shown.get(place, (number, 0)) == (number, copy.pending):
                continue
            self._shown[place] = (number, copy.pending)
            for at in range(FILES):
                key = (number, f"{brick.path}/{_INDEX}/{at}")
                if at < copy.pending:
                    machine.files[key] = b""
                else:
                    machine.files.pop(key, None)

    def _copy_at(self, address: str, path: str) -> Copy | None:
        return self.copy_of(BrickRecord(address, path, ""))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _knows(one: Glusterd, other: Glusterd) -> bool:
    known = one.peers.get(other.uuid)
    return known is not None and known.state in (IN_CLUSTER, REJECTED) and known.address == other.address


def _pair(one: Glusterd, other: Glusterd) -> tuple[str, str]:
    return (one.uuid, other.uuid) if one.uuid < other.uuid else (other.uuid, one.uuid)


def _number(machine: FakeMachine, path: str) -> str:
    """Of the file system in which a path lies."""
    number, length = ROOT.number, len(ROOT.target)
    for mount in machine.mounts:
        target = mount.target
        if len(target) >= length and path.startswith(target) and path.startswith("/", len(target)):
            number, length = mount.number, len(target)
    return number


def _identity(process: FakeProcess) -> str:
    """As glusterd does: in its working directory there is a file that says who it is."""
    volfile = process.daemon.argv[-1]
    file = Path(volfile).parent / "glusterd" / "glusterd.info"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"UUID={entropy.new_uid()}\n")
    return file.read_text().strip().partition("=")[2]
