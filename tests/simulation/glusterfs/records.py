"""What a glusterd has written down: who is in its pool, and which volumes there are. Each host has its own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from .lineage import Shape

IN_CLUSTER, ACCEPTED, REJECTED = 3, 4, 6
STATES = {IN_CLUSTER: "Peer in Cluster", ACCEPTED: "Accepted peer request", REJECTED: "Peer Rejected"}
CREATED, STARTED, STOPPED = "Created", "Started", "Stopped"
SERVER_QUORUM = "cluster.server-quorum-type"
TAKEN = "not available. Brick may be containing or be contained by an existing brick."


class RefusedError(Exception):
    """In the words of gluster."""

    def __init__(self, words: str, code: int = -1) -> None:
        super().__init__(words)
        self.code = code


class BrickRecord(msgspec.Struct, frozen=True):
    address: str
    path: str
    uuid: str  # of the glusterd that has it

    @property
    def name(self) -> str:
        return f"{self.address}:{self.path}"


class VolumeRecord(msgspec.Struct, frozen=True):
    """Who finds another one with a higher version takes that over."""

    name: str
    id: str
    shape: Shape
    bricks: tuple[BrickRecord, ...]
    options: Mapping[str, str]
    status: str = CREATED
    limit: int = 0
    version: int = 1
    leaving: str = ""  # the brick whose content is being moved to the others

    @property
    def started(self) -> bool:
        return self.status == STARTED

    @property
    def needs_quorum(self) -> bool:
        return self.options.get(SERVER_QUORUM) == "server"

    def says_the_same(self, other: VolumeRecord | None) -> bool:
        """Be it after another number of changes."""
        return other is not None and replace(other, version=self.version) == self

    def set_of(self, position: int) -> range:
        begin = position - position % self.shape.width
        return range(begin, begin + self.shape.width)

    @property
    def sets(self) -> list[range]:
        return [self.set_of(at) for at in range(0, len(self.bricks), self.shape.width)]


class PeerRecord(msgspec.Struct, frozen=True):
    uuid: str
    address: str
    state: int = IN_CLUSTER


class Glusterd:
    """The state of one glusterd, which outlives its process."""

    def __init__(self, uuid: str, address: str) -> None:
        self.uuid = uuid
        self.address = address
        self.peers: dict[str, PeerRecord] = {}
        self.volumes: dict[str, VolumeRecord] = {}
        self.quorate = True

    @property
    def in_pool(self) -> bool:
        return bool(self.peers)
