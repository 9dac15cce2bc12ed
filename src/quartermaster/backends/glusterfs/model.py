"""What GlusterFS says of itself, as values: peers of the pool, volumes and their bricks, what is to be healed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

IN_CLUSTER = 3  # the state of a peer that has been taken in


class Peer(msgspec.Struct, frozen=True):
    uuid: str
    names: tuple[str, ...]  # by which the pool knows it; the first one is how commands name it
    connected: bool
    state: int = IN_CLUSTER
    state_text: str = ""
    local: bool = False  # the host that was asked

    @property
    def name(self) -> str:
        return self.names[0] if self.names else ""

    @property
    def serves(self) -> bool:
        return self.connected and self.state == IN_CLUSTER


class Brick(msgspec.Struct, frozen=True):
    name: str  # address:/path
    uuid: str  # of its peer
    arbiter: bool = False


class VolumeInfo(msgspec.Struct, frozen=True):
    name: str
    id: str
    started: bool
    bricks: tuple[Brick, ...]
    replica: int = 1
    arbiter: int = 0
    disperse: int = 0
    redundancy: int = 0
    options: Mapping[str, str] = {}

    @property
    def width(self) -> int:
        """So many bricks have the same files, or parts of them."""
        return self.disperse or self.replica


class HealCount(msgspec.Struct, frozen=True):
    """Of one brick; what cannot be counted because it does not answer is not `connected`."""

    brick: str
    connected: bool
    pending: int = 0
    split_brain: int = 0


class QuotaLimit(msgspec.Struct, frozen=True):
    path: str
    limit: int
    used: int
