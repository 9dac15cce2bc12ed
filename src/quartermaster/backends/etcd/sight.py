"""The members as etcd lists them, put together with what leaders remember and with the hosts: what is decided by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from quartermaster.backends.etcd.memory import Memory, Seat, with_seat
from quartermaster.backends.etcd.tool import EtcdMember
from quartermaster.planning.health import HostHealth
from quartermaster.planning.quorum import Member, Place, Quorum, Situation
from quartermaster.resources.marks import LEAVING, ZONE_LABEL
from quartermaster.resources.orchestration import Host, Inventory
from quartermaster.support.addresses import is_loopback, same_address

_LISTS_ADDRESSES = "ip"


class Sight(msgspec.Struct, frozen=True):
    """etcd at one moment."""

    listed: tuple[EtcdMember, ...]
    running: Mapping[int, bool]  # by etcd's own id

    def entry(self, seat: Seat) -> EtcdMember | None:
        return next((one for one in self.listed if seat.is_listed_as(one)), None)

    def has_address_of(self, seat: Seat) -> EtcdMember | None:
        """Another member at the address of this one: etcd would take the two for one."""
        there = (one for one in self.listed if seat.config.peer_url in one.peer_urls)
        return next((one for one in there if not seat.is_listed_as(one)), None)

    def strangers(self, memory: Memory) -> tuple[str, ...]:
        """Members that this program did not add: while there is one, nothing is changed."""
        unknown = [one for one in self.listed if memory.of(one) is None]
        return tuple(one.name or f"{one.id:x}" for one in unknown)


def caught_up(memory: Memory, sight: Sight) -> Memory:
    """Brought up to what etcd says: an earlier leader may have died after a step and before it wrote that down."""
    for seat in memory.seats:
        entry = sight.entry(seat)
        if seat.phase == "joining" and entry is not None and not entry.learner:
            memory = with_seat(memory, replace(seat, phase="serving"))
        if seat.phase == "serving" and entry is None:
            gone = replace(seat, phase="removing", why="it is no member of etcd any more")
            memory = with_seat(memory, gone)
    return memory


def places_of(hosts: Sequence[Host], health: HostHealth, memory: Memory, unfit: Mapping[str, str]) -> tuple[Place, ...]:
    clearing = {seat.host for seat in memory.seats if seat.phase == "removing"}

    def reason(host: Host) -> str:
        name = host.metadata.name
        if name in clearing:
            return "its former member is not cleared away yet"
        return unfit.get(name, "") or wrong_address(host, memory)

    return tuple(
        Place(
            host.metadata.name,
            host.metadata.labels.get(ZONE_LABEL, ""),
            healthy=health.of(host.metadata.name).healthy,
            leaving=LEAVING in host.metadata.annotations or host.metadata.deletion_timestamp is not None,
            unfit=reason(host),
        )
        for host in hosts
    )


def wrong_address(host: Host, memory: Memory) -> str:
    """Why no member can be at the address of a host that carries none that serves; a member that serves stays."""
    seat = memory.at(host.metadata.name)
    if seat is not None and seat.phase == "serving":
        return ""
    if not host.spec.addresses:
        return "it has no address"
    address = host.spec.addresses[0]
    for other in memory.seats:
        if other.host != host.metadata.name and same_address(other.config.address, address):
            return f"its address {address} is that of {other.id}, on host {other.host}"
    found = _all_addresses(host.status.inventory)
    if found and not is_loopback(address) and not any(same_address(address, one) for one in found):
        return f"its address {address} is none of those that it has: {', '.join(found)}"
    return ""


def _all_addresses(inventory: Inventory | None) -> tuple[str, ...]:
    """Those that others reach; none where not all of them are known: without a program that lists them one is found."""
    if inventory is None or _LISTS_ADDRESSES in inventory.facts.get("missing", "").split(", "):
        return ()
    return inventory.addresses


def quorum_of(
    memory: Memory,
    sight: Sight,
    places: tuple[Place, ...],
    dead: frozenset[str],
    emptied: frozenset[str] = frozenset(),
) -> Quorum:
    """Only what etcd lists is a member.

    `dead` holds the names of those that were silent for too long, `emptied` of those whose data are gone.
    """
    members = []
    for seat in memory.seats:
        entry = sight.entry(seat)
        if entry is None:
            continue
        running = sight.running.get(entry.id, False)
        members.append(
            Member(
                seat.id,
                seat.host,
                voting=not entry.learner,
                running=running,
                ready=running and bool(entry.name),
                dead=(seat.id in dead or seat.id in emptied) and not running,
                emptied=seat.id in emptied and not running,
            )
        )
    return Quorum(tuple(members), places)


def may_go(quorum: Quorum, member: str) -> bool:
    """Whether a member that is to be removed can be, by what is seen now and not when that was decided."""
    now = Situation(quorum)
    for one in quorum.members:
        if one.id == member and one.voting:
            return len(now.voters) > 1 and now.stays_alive_without(one)
    return True
