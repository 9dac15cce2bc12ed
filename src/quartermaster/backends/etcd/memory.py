"""What the leaders know of the members they placed, in one object: written before a step, read by whoever leads next.

etcd's own list says who is a member; this says which host each is on, what it is called, and how far it had come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from quartermaster.backends.etcd.member import MemberConfig, initial_cluster
from quartermaster.backends.etcd.tool import EtcdMember
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support.errors import InvalidError

MEMORY_NAME = "quartermaster-etcd"
_KEY = "members"

Phase = Literal["preparing", "joining", "serving", "removing"]


class Seat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One member, from the moment at which a host was chosen for it until nothing of it is left there.

    preparing   the host makes ready; etcd does not know of it
    joining     etcd may know it as a learner
    serving     it has a vote
    removing    etcd may know it no more; the host is to clear up
    """

    config: MemberConfig
    host: str
    phase: Phase
    why: str = ""  # of the latest step, for people

    @property
    def id(self) -> str:
        return self.config.member

    def is_listed_as(self, entry: EtcdMember) -> bool:
        """A member that has run says its name, which is never given twice.

        The address tells only who one is that was added and has not run: a host may claim an address that the member
        of another has.
        """
        if entry.name:
            return entry.name == self.id
        return self.phase in ("joining", "removing") and self.config.peer_url in entry.peer_urls


class Memory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cluster: str  # the token that tells this cluster's members from others
    last: int = 0  # the highest number that was ever given
    seats: tuple[Seat, ...] = ()

    def at(self, host: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.host == host), None)

    def find(self, member: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.id == member), None)

    def of(self, entry: EtcdMember) -> Seat | None:
        """Whose entry in etcd's list that is."""
        return next((seat for seat in self.seats if seat.is_listed_as(entry)), None)


def first_memory(cluster: str, host: str, config: MemberConfig) -> Memory:
    """What is known after the first host has made a cluster of one."""
    # What is started from this one never makes a cluster again.
    seat = Seat(config=replace(config, new_cluster=False), host=host, phase="serving", why="the first host")
    return Memory(cluster=cluster, last=1, seats=(seat,))


def member_name(number: int) -> str:
    return f"etcd-{number}"


def with_new_seat(memory: Memory, host: str, config: MemberConfig, why: str) -> Memory:
    """A number that was never used, for a member on that host."""
    number = memory.last + 1
    named = replace(config, member=member_name(number), cluster=memory.cluster)
    seat = Seat(config=named, host=host, phase="preparing", why=why)
    return replace(memory, last=number, seats=(*memory.seats, seat))


def with_seat(memory: Memory, seat: Seat) -> Memory:
    """The same, with that seat in the place of the one of its name."""
    seats = tuple(seat if one.id == seat.id else one for one in memory.seats)
    return replace(memory, seats=seats)


def without_seat(memory: Memory, member: str) -> Memory:
    return replace(memory, seats=tuple(seat for seat in memory.seats if seat.id != member))


def with_initial(seat: Seat, listed: Sequence[EtcdMember]) -> Seat:
    """Told who the members are at the moment at which it became one, which etcd wants to know at its first start."""
    members = [(one.name or seat.id, url) for one in listed for url in one.peer_urls]
    return replace(seat, config=replace(seat.config, initial=initial_cluster(members)))


def to_object(memory: Memory, namespace: str) -> ConfigMap:
    text = msgspec.json.encode(memory).decode()
    return ConfigMap(metadata=ObjectMeta(name=MEMORY_NAME, namespace=namespace), data={_KEY: text})


def from_object(found: ConfigMap) -> Memory:
    try:
        return msgspec.json.decode(found.data.get(_KEY, ""), type=Memory)
    except msgspec.DecodeError as error:
        raise InvalidError(
            f"cannot read what is known of etcd's members from the ConfigMap {found.key}: {error}",
            hint="nothing is changed until it is mended; a backup of the store holds an earlier one",
        ) from error


class Book:
    """The memory as it is stored, and as it is changed: every write compares with what was read."""

    def __init__(self, store: Store, found: ConfigMap) -> None:
        self._store = store
        self._found = found
        self.memory = from_object(found)

    @property
    def object(self) -> ConfigMap:
        """What Events are about."""
        return self._found

    async def write(self, memory: Memory) -> None:
        if memory == self.memory:
            return
        text = to_object(memory, self._found.metadata.namespace).data
        self._found = await self._store.update(replace(self._found, data={**self._found.data, **text}))
        self.memory = memory
