"""What can be asked of a running etcd besides its keys: who its members are, how they do, and what keeps it in shape.

`EtcdClient` (client.py) speaks to a real one, `FakeEtcd` (fake.py) is its twin for the simulation. Every call may be
repeated: what is there already is not made again, what is gone already is not missed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from quartermaster.host.tools import Tool, register

PROGRAM = "etcd"
CLIENT_PORT = 2379
PEER_PORT = 2380
# A member of its own program is told apart from another etcd on the host by the name of its daemon.
DAEMON = "quartermaster-etcd"

register(Tool(PROGRAM, "etcd-server", "keeps the objects of a cluster without Kubernetes"))


class Alarm(StrEnum):
    NO_SPACE = "NOSPACE"  # the database has reached its quota: nothing can be written
    CORRUPT = "CORRUPT"  # members disagree about what is stored


class EtcdMember(msgspec.Struct, frozen=True):
    """An entry in etcd's own list. One that was added and has not started has no name and no client URLs."""

    id: int
    name: str = ""
    peer_urls: tuple[str, ...] = ()
    client_urls: tuple[str, ...] = ()
    learner: bool = False


class EtcdStatus(msgspec.Struct, frozen=True):
    """What a member says of itself."""

    id: int
    version: str = ""
    size: int = 0  # of the database file
    in_use: int = 0  # what a defragmentation would leave of it
    leader: int = 0
    index: int = 0
    applied: int = 0


class RaisedAlarm(msgspec.Struct, frozen=True):
    alarm: Alarm
    member: int


class EtcdTool(Protocol):
    async def members(self) -> tuple[EtcdMember, ...]:
        """As the majority knows them, by id. UnavailableError without a majority."""
        ...

    async def add_learner(self, peer_url: str) -> EtcdMember:
        """A member without a vote; the same again if its URL is there. RefusedError while a member is down."""
        ...

    async def promote(self, member: int) -> bool:
        """Give a learner its vote; False while it has not caught up, True also if it has one already."""
        ...

    async def remove(self, member: int) -> None: ...

    async def status(self, client_url: str) -> EtcdStatus | None:
        """What the member at that URL says; None when it does not answer or knows no leader."""
        ...

    async def revision(self) -> int: ...

    async def compact(self, revision: int) -> None:
        """Forget what was before, and wait until that is done."""
        ...

    async def defragment(self, client_url: str) -> None:
        """Give the space of what was forgotten back; the member does not answer while it does."""
        ...

    async def alarms(self) -> tuple[RaisedAlarm, ...]: ...

    async def disarm(self, alarm: RaisedAlarm) -> None: ...

    async def close(self) -> None: ...
