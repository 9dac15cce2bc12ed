"""What must always be true of a GlusterFS cluster, and who notices when it is not.

The `Auditor` is told of every change of the modelled pool at the moment at which it takes effect, and of every
directory that an agent removes; it knows what is on each copy, whatever leader and agents believe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from quartermaster.backends.glusterfs.facts import MOVE, MOVE_PREFIX
from quartermaster.host.commands import Command
from quartermaster.provisioning.protocol import RETAIN, VOLUME_FINALIZER
from quartermaster.resources.codec import Document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume
from quartermaster.resources.orchestration import RUNNING, TRIGGERED
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.testing.simulation import record
from quartermaster.testing.simulation.process import PROCESS
from tests.simulation.orchestration import invariants as orchestration
from tests.simulation.orchestration.invariants import CLAIMS, CONVERGES, FENCED, KEPT, NODES, ONE_LEADER, QUIET

from .hosts import GlusterMachine
from .judging import LEASES, MEMORIES, Judge
from .lineage import Copy, is_whole
from .model import GlusterModel
from .records import BrickRecord, PeerRecord, VolumeRecord
from .verbs import Watcher

NO_LOSS = "nothing that was written is lost while failures stay within what the volume is made for"
HEALED = "no brick is given up or removed before every copy is whole"
RIGHT_BRICK = "a brick is given up for a reason, and after that was written down"
FOREIGN = "nothing that belongs to somebody else is touched"
# Between the last look of an agent and the effect of its command somebody may have gone away.
WINDOW_S = 20.0
# And somebody may have come back, who was dead when the agent looked: so long a command may take.
RETURNED_S = 5.0
# A brick, all that is on one host (""), or one file system of it.
Loss = BrickRecord | tuple[GlusterMachine, str] | None
MOVES = f"/{MOVE}-{MOVE_PREFIX}"  # in the key of an assignment
STRANGER, PHOTOS = "10.0.0.9", "photos"
VOLUMES = kind_prefix(kind_of(PersistentVolume))

__all__ = [
    "CONVERGES",
    "FENCED",
    "FOREIGN",
    "HEALED",
    "KEPT",
    "NO_LOSS",
    "ONE_LEADER",
    "QUIET",
    "RIGHT_BRICK",
    "Auditor",
    "Witness",
]


class Witness(orchestration.Witness):
    """Of the store and of the disks; directories are the auditor's."""

    auditor: Auditor

    def directory_made(self, host: str, path: str) -> None:
        """A glusterd makes those of bricks."""

    def directory_removed(self, host: str, path: str) -> None:
        self.auditor.directory_removed(host, path)

    def _learn(self, key: str, value: Document) -> None:
        super()._learn(key, value)
        if key.startswith(CLAIMS):
            self.auditor.claim_seen(key, value)

    async def _look(self, key: str) -> None:
        before = self._revision
        await super()._look(key)
        if self._revision == before:
            return
        process = PROCESS.get()
        if key.startswith(LEASES) and process is not None:
            self.auditor.judge.beat(process.name)
        elif key.startswith(CLAIMS) and self._value(key) is None:
            self.auditor.claim_gone(key)
        elif key.startswith(VOLUMES):
            self.auditor.volume_seen(self._value(key))
        elif key.startswith((NODES, MEMORIES)):
            self.auditor.judge.saw(key, self._value(key))
        elif MOVES in key:
            self.auditor.move_seen(self._value(key))


class Auditor(Watcher):
    def __init__(
        self, model: GlusterModel, witness: Witness, machines: Mapping[str, GlusterMachine], judge: Judge
    ) -> None:
        """`machines` are by host."""
        self.judge = judge
        self.replacements = 0
        self.changes: list[tuple[str, ...]] = []  # commands of agents that were to change something
        self.bound: dict[str, None] = {}  # volumes that somebody may write to
        self.retained: dict[str, None] = {}  # volumes that are kept although their claims are gone
        self._claims: dict[str, str] = {}  # key → volume
        self._moving: dict[str, str] = {}  # volume → the brick of it that an agent is about to give up
        self._model = model
        self._witness = witness
        self._machines = machines
        self._addresses = {id(machine): address for address, machine in model.machines.items()}
        self._whole: dict[tuple[str, str], float] = {}  # (address, path) → when it was last whole
        self._serving: dict[tuple[str, str], float] = {}  # the same → since when it serves

    # What is known of claims.

    def claim_seen(self, key: str, value: Document) -> None:
        volume = f"pvc-{value['metadata']['uid']}"
        self._claims[key] = volume
        wanted = not value["metadata"].get("deletionTimestamp")
        if wanted and value.get("status", {}).get("phase") == "Bound":
            self.bound[volume] = None
        elif not wanted:
            self.bound.pop(volume, None)

    def claim_gone(self, key: str) -> None:
        self.bound.pop(self._claims.pop(key, ""), None)

    def volume_seen(self, value: Document | None) -> None:
        """It is kept from when the leader has written that: until then it may be too late."""
        if value is None:
            return
        name, policy = value["metadata"]["name"], value["spec"].get("persistentVolumeReclaimPolicy")
        self.retained.pop(name, None)
        is_kept = policy == RETAIN and VOLUME_FINALIZER not in value["metadata"].get("finalizers", ())
        if is_kept and any(volume.name == name for volume in self._model.volumes.values()):
            self.retained[name] = None

    def move_seen(self, value: Document | None) -> None:
        if value is None:
            return
        volume = value["spec"].get("instance", "").removeprefix(MOVE_PREFIX)
        self._moving.pop(volume, None)
        if value.get("status", {}).get("state") in (TRIGGERED, RUNNING):
            self._moving[volume] = (value["spec"].get("desired") or {}).get("old", "")

    # What is on disks, whether or not somebody can read it now.

    def stored(self, brick: BrickRecord) -> Copy | None:
        machine, number = self._machine(brick.address), self._model.holder(brick)[1]
        there = (number, brick.path) in machine.directories and machine.stores(number)
        return self._model.copies.get((brick.address, number, brick.path)) if there else None

    def is_wanted(self, volume: VolumeRecord) -> bool:
        """Whether somebody may have written to it, and would miss that: its claim is there, or he has it mounted."""
        return volume.name in self.bound or volume.name in self.retained or volume.name in self._model.users

    def is_safe(self, volume: VolumeRecord, *without: Loss) -> bool:
        """Whether every file has its newest version in as many copies as make one, when bricks or disks are gone."""
        if not self.is_wanted(volume):
            return True
        for members in volume.sets:
            newest = self._newest(volume, members)
            kept = [at for at in members if volume.shape.keeps_content(at - members.start)]
            bricks = [volume.bricks[at] for at in kept]
            copies = [self.stored(one) for one in bricks if not any(self._is_on(one, loss) for loss in without)]
            for file, version in newest.items():
                if sum(is_whole(copy, {file: version}) for copy in copies) < volume.shape.least:
                    return False
        return True

    def survives(self, volume: VolumeRecord, loss: Loss) -> bool:
        """Whether it is what it is made for: nothing is lost, and one that is empty or being made can be used. Nobody
        can help what goes between the last look of an agent and its command: what it gives up counts as gone by then.
        """
        old = self._moving.get(volume.name)
        if old is not None and volume.shape.has_none_to_spare:
            return False
        given_up = next((brick for brick in volume.bricks if brick.name == old), None)
        return self.is_safe(volume, loss, given_up) and (self._is_there(volume, loss) or not self._is_there(volume))

    def _is_there(self, volume: VolumeRecord, without: Loss = None) -> bool:
        """Whether every set has as many copies as make a file."""
        for members in volume.sets if volume.name in self._claims.values() else ():
            bricks = [volume.bricks[at] for at in members if volume.shape.keeps_content(at - members.start)]
            left = [brick for brick in bricks if self.stored(brick) is not None and not self._is_on(brick, without)]
            if len(left) < volume.shape.least:
                return False
        return True

    def all_whole(self, volume: VolumeRecord) -> bool:
        return all(
            is_whole(self.stored(volume.bricks[at]), self._newest(volume, members))
            for members in volume.sets
            for at in members
        )

    def look(self) -> None:
        """Take note of which copies are whole."""
        now = asyncio.get_running_loop().time()
        for volume in self._model.volumes.values():
            for members in volume.sets:
                newest = self._newest(volume, members)
                for at in members:
                    brick = volume.bricks[at]
                    if is_whole(self.stored(brick), newest):
                        self._whole[brick.address, brick.path] = now
                    if self._model.serves(brick):
                        self._serving.setdefault((brick.address, brick.path), now)
                    else:
                        self._serving.pop((brick.address, brick.path), None)
            if not self.is_safe(volume):
                self._witness.violated(NO_LOSS, f"{volume.name}: {self._describe(volume)}")

    # What is done.

    def heard(self, address: str, command: Command) -> None:
        words = tuple(word for word in command.argv[1:] if not word.startswith("--"))
        if not command.changes or not words:
            return
        record("gluster", address, *(word.partition(":/")[0] for word in words[:4]))
        self.changes.append((address, *words))
        if PHOTOS in words or (words[:2] == ("peer", "detach") and words[2] == STRANGER):
            self._witness.violated(FOREIGN, f"{address}: {' '.join(words)}")

    def replaced(self, volume: VolumeRecord, position: int, new: BrickRecord) -> None:
        self.replacements += 1
        old, members = volume.bricks[position], volume.set_of(position)
        record("replaced", volume.name, position, old.address, new.address)
        others = [volume.bricks[at] for at in members if at != position]
        beside = any(brick.address == new.address and self._model.serves(brick) for brick in others)
        if beside and self.is_wanted(volume):
            self._witness.violated(RIGHT_BRICK, f"{new.address} has two copies of {volume.name}")
        if not self.is_safe(volume, old) and self.is_safe(volume):
            self._witness.violated(NO_LOSS, f"{volume.name} without {old.address}: {self._describe(volume)}")
        # Two copies on a host is reason enough: one went there while the volume was being deleted and nobody minded.
        reason = self.judge.verdicts.get(old.name, False) or any(brick.address == old.address for brick in others)
        if not reason and self.stored(old) is not None:
            self._witness.violated(RIGHT_BRICK, f"{volume.name} gives up {old.address}, and there was no reason to")
        if self._has_served(old) and self._model.network.reaches(old.address, new.address):
            self._check_healed(volume, others, f"{old.address} is given up")

    def stopped(self, volume: VolumeRecord) -> None:
        if volume.name in self._model.users:
            self._witness.violated(KEPT, f"{volume.name} is stopped, and somebody has it mounted")

    def deleted(self, volume: VolumeRecord) -> None:
        record("deleted", volume.name)
        if volume.name in self.bound:
            self._witness.violated(KEPT, f"{volume.name} is deleted, and its claim is there")
        if volume.name in self.retained:
            self._witness.violated(KEPT, f"{volume.name} is deleted, and it was to be kept")

    def detached(self, peer: PeerRecord) -> None:
        record("detached", peer.address)

    def directory_removed(self, host: str, path: str) -> None:
        address = self._addresses[id(self._machines[host])]
        held = self._model.volumes.values()
        for volume in held:
            for at, brick in enumerate(volume.bricks):
                if (brick.address, brick.path) == (address, path):
                    self._witness.violated(KEPT, f"{path} is removed on {host}, and {volume.name} has it ({at})")
        copy = self.stored(BrickRecord(address, path, ""))
        known = self._model.volumes.get(copy.volume) if copy is not None else None
        if known is not None and copy is not None and copy.versions:
            self._check_healed(known, known.bricks, f"a copy is removed on {host}")

    def _has_served(self, brick: BrickRecord) -> bool:
        """And not only since its agent looked, to which it was dead."""
        now = asyncio.get_running_loop().time()
        since = self._serving.get((brick.address, brick.path), now)
        return self._model.serves(brick) and now - since >= RETURNED_S

    def _check_healed(self, volume: VolumeRecord, bricks: Sequence[BrickRecord], what: str) -> None:
        now = asyncio.get_running_loop().time()
        for brick in bricks:
            ago = now - self._whole.get((brick.address, brick.path), -1_000.0)
            if ago > WINDOW_S and self._model.newest[volume.id] and self.is_wanted(volume):
                self._witness.violated(HEALED, f"{what}, and {brick.address} lacks something of {volume.name}")

    def _newest(self, volume: VolumeRecord, members: range) -> dict[str, int]:
        files = self._model.files_of(volume, members)
        return {file: version for file, version in self._model.newest[volume.id].items() if file in files}

    def _is_on(self, brick: BrickRecord, without: Loss) -> bool:
        if isinstance(without, BrickRecord):
            return brick == without
        if without is None:
            return False
        machine, number = without
        own = self._machine(brick.address)
        if own is not machine:
            return False
        return not number or number == self._model.holder(brick)[1]

    def _machine(self, address: str) -> GlusterMachine:
        machine = self._model.machines[address]
        assert isinstance(machine, GlusterMachine)
        return machine

    def _describe(self, volume: VolumeRecord) -> str:
        shown = []
        for brick in volume.bricks:
            copy = self.stored(brick)
            shown.append(f"{brick.address} {copy.versions if copy is not None else 'gone'}")
        return f"{self._model.newest[volume.id]} was written, there is {', '.join(shown)}"
