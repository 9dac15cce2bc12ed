"""What agents report of a pool, and what plans remember of it, as values.

A report is what was there when its agent looked; what is remembered is what was decided. Where a brick is follows from
the report, where it is to be from the placement of its volume and the moves that were decided since.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import msgspec

TYPE = "glusterfs"
NODE = "glusterd"  # the agents; by their names the one of the node comes first
POOL = "glusterfs-pool"
MOVE = "glusterfs-move"
MOVE_PREFIX = "brick-"  # of the instances of that, before the name of a volume
ROOT = "glusterfs-root"
VOLUME = "glusterfs-volume"

PENDING = ".glusterfs/indices/xattrop"  # in a brick: gluster keeps a link here for every entry that is to be healed
PENDING_BASE = "xattrop-"
SERVERS = "servers"  # in the section of the StorageStatus: the addresses of the pool, for whoever mounts a volume
BRICK_MARK = "trusted.glusterfs.volume-id"  # the extended attribute that every brick has
SIZE_OPTION = "user.quartermaster.size"  # in which a volume says its limit
VOLUME_PREFIX = "pvc-"  # of the directories of bricks


class PeerFact(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    connected: bool
    serves: bool = True  # taken in, and not merely known
    state: str = ""


class VolumeFact(msgspec.Struct, frozen=True, omit_defaults=True):
    bricks: tuple[str, ...]
    owner: str = ""  # the cluster that made it; "" where nobody says
    id: str = ""  # gluster's own: one that is made anew has the same name and another id
    started: bool = True
    # By position, as all that grows when bricks do not run: the report has to be small enough when none does.
    offline: tuple[int, ...] = ()  # bricks that do not run
    stuck: tuple[int, ...] = ()  # those among them that were started again and again
    pending: int | None = None  # entries to be healed; None: nobody has looked, or a brick does not answer
    split: tuple[str, ...] = ()  # the first of the files of which no copy can be taken for the right one
    splits: int = 0  # how many of them there are
    behind: tuple[int, ...] = ()  # positions of bricks that know of less to be healed than others of their set
    quiet: bool = False  # nothing was to be healed in any count for minutes, since the roots of new bricks were healed
    alike: tuple[int, ...] = ()  # positions of bricks that lack nothing, by all that answer beside a dead one
    processes: tuple[str, ...] = ()  # by position, "" where none runs: another one was started in between
    promised: tuple[
        int, ...
    ] = ()  # what a brick may come to hold, by position in its set; one number where all may alike
    peers: tuple[str, ...] = ()  # by position, the UUIDs of their hosts; none where their names say it

    def peer_of(self, brick: str) -> str:
        return next((uuid for name, uuid in zip(self.bricks, self.peers, strict=False) if name == brick), "")

    def bricks_on(self, uuid: str, *addresses: str) -> list[str]:
        """A host may have several addresses, and any of them may be in the name of a brick: it is known by its UUID."""
        pairs = zip_longest(self.bricks, self.peers, fillvalue="")
        return [name for name, peer in pairs if name.partition(":/")[0] in addresses or (peer and peer == uuid)]

    @property
    def healed(self) -> bool:
        return not self.offline and not self.pending and self.started


class PoolFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the coordinator saw."""

    peers: dict[str, PeerFact] = {}  # by UUID
    volumes: dict[str, VolumeFact] = {}
    failed: dict[str, str] = {}  # what it could not do → why


def read_pool_facts(result: Mapping[str, Any]) -> PoolFacts:
    """An agent of an earlier version calls the bricks that do not run by their names."""
    named = {name: told for name, told in result.get("volumes", {}).items() if told.get("offline")}
    volumes = {
        name: {**told, **{key: [_position(told, one) for one in told.get(key, ())] for key in ("offline", "stuck")}}
        for name, told in named.items()
    }
    return msgspec.convert({**result, "volumes": {**result.get("volumes", {}), **volumes}}, PoolFacts)


def _position(told: Mapping[str, Any], brick: int | str) -> int:
    return brick if isinstance(brick, int) else list(told["bricks"]).index(brick)


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent of a node saw."""

    uuid: str = ""
    version: str = ""
    bricks: dict[str, dict[str, int]] = {}  # base → directory in it → entries to be healed
    ours: dict[str, tuple[str, ...]] = {}  # directory that others use too → in it, what is known to be a brick of ours
    refused: tuple[str, ...] = ()  # the UUIDs of peers with which its glusterd has fallen out
    removing: dict[str, tuple[str, ...]] = {}  # base → bricks whose removal takes longer than one run has
    dead: dict[str, str] = {}  # base → why nothing can be read there


class BrickPlace(msgspec.Struct, frozen=True):
    """Where a brick is to be."""

    node: str
    host: str
    address: str
    base: str
    path: str

    @property
    def name(self) -> str:
        return f"{self.address}:{self.path}"


class OpenMove(msgspec.Struct, frozen=True):
    """A brick that is being replaced, until its copy is whole."""

    position: int
    old: str  # the brick whose place is taken
    why: str
    dead: bool = False  # nothing could be read there any more
    sources: tuple[str, ...] = ()  # bricks that it is made anew from
    whole: bool = False  # these are known to be whole
    needed: int = 0  # so many of them have to run when the old one is given up; 0: nothing of the volume is wanted
    returns: bool = False  # the old one may be back before it is given up
    place: BrickPlace | None = None  # where the old one is; None: an earlier version decided it, or nobody knows


class Moved(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bricks of one volume that are no longer where they were placed; by their position."""

    of: str = ""  # the id of the volume
    count: int = 0  # of moves ever made: no directory is used twice
    bricks: dict[str, BrickPlace] = {}
    open: OpenMove | None = None  # one at a time


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    coordinator: str = ""  # a host
    members: dict[str, str] = {}  # UUID → host, of all that we took into the pool
    moves: dict[str, Moved] = {}  # by volume
    behind: dict[str, tuple[int, ...]] = {}  # volume → positions of bricks that may lack something
    filled: dict[str, tuple[str, ...]] = {}  # volume → new bricks of an erasure-coded one that were found to be whole
    down: dict[str, tuple[int, ...]] = {}  # volume → positions of bricks that did not run at the last look
    processes: dict[str, tuple[str, ...]] = {}  # volume → those that ran its bricks last, by position
    ending: dict[str, str] = {}  # volume → id: somebody was asked to delete it, and nobody knows yet whether he did
    ended: tuple[str, ...] = ()  # the ids of the volumes that were deleted last: one that was away may bring them back
    former: tuple[str, ...] = ()  # the UUIDs of the last that the pool has let go: somebody may still be taking one in


_FIELDS = ("members", "moves", "behind", "filled", "down", "processes", "ending", "ended", "former")


def read_memory(memory: Mapping[str, str]) -> Memory:
    found: dict[str, Any] = {name: msgspec.json.decode(memory[name]) for name in _FIELDS if name in memory}
    return msgspec.convert({**found, "coordinator": memory.get("coordinator", "")}, Memory)


def write_memory(memory: Memory) -> dict[str, str]:
    plain = msgspec.to_builtins(memory)
    texts = {name: msgspec.json.encode(plain[name], order="sorted").decode() for name in _FIELDS if plain.get(name)}
    return {**({"coordinator": memory.coordinator} if memory.coordinator else {}), **texts}
