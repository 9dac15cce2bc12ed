"""What the leader would do to its own etcd next: its rules, on what anybody can see in the store.

The leader itself asks the members. So it may still wait where this says what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.backends.etcd.memory import MEMORY_NAME, Memory, from_object
from quartermaster.planning.health import READY
from quartermaster.planning.quorum import Decision, Member, Place, Quorum, decide
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.marks import LEAVING, ZONE_LABEL
from quartermaster.resources.orchestration import Host
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError

_UNDER_WAY = {
    "preparing": "get host {host} ready for {id}",
    "joining": "add {id} on host {host}",
    "removing": "remove {id} from host {host}",
}
_NEXT = {
    "add": "add a member on host {host}",
    "promote": "let {id} on host {host} vote",
    "remove": "remove {id} from host {host}",
}


class Foreseen(msgspec.Struct, frozen=True):
    members: tuple[str, ...]  # the hosts of those that serve
    steps: tuple[tuple[str, str], ...]  # what, and why
    message: str


async def memory_of(store: Store, namespace: str) -> Memory | None:
    """None where the store is not an etcd of the program's own."""
    try:
        return from_object(await store.get(ConfigMap, MEMORY_NAME, namespace))
    except NotFoundError:
        return None


def foresee(memory: Memory, hosts: Sequence[Host]) -> Foreseen:
    serving = tuple(seat.host for seat in memory.seats if seat.phase == "serving")
    under_way = [
        (_UNDER_WAY[seat.phase].format(host=seat.host, id=seat.id), seat.why)
        for seat in memory.seats
        if seat.phase in _UNDER_WAY
    ]
    if under_way:  # one change at a time
        return Foreseen(serving, tuple(under_way), "a change of its members is under way")
    decision = next_change(memory, hosts)
    if decision.move is None:
        return Foreseen(serving, (), decision.why)
    what = _NEXT[decision.move.kind].format(host=decision.move.host, id=decision.move.id)
    return Foreseen(serving, ((what, decision.why),), f"members: {len(serving)}")


def next_change(memory: Memory, hosts: Sequence[Host], *, leaving: str = "") -> Decision:
    """`leaving` is a host that would be taken out."""
    places = tuple(
        Place(
            host.metadata.name,
            host.metadata.labels.get(ZONE_LABEL, ""),
            healthy=host.status.state == READY,
            leaving=host.metadata.name == leaving or LEAVING in host.metadata.annotations,
        )
        for host in hosts
    )
    ready = {place.host: place.healthy for place in places}
    members = tuple(
        Member(seat.id, seat.host, running=ready.get(seat.host, False))
        for seat in memory.seats
        if seat.phase == "serving"
    )
    return decide(Quorum(members, places))
