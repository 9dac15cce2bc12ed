"""Which hosts carry a member of a service that decides by majority, and the one next step towards that.

The size follows the hosts: up to 2 → 1, up to 20 → 3, up to 100 → 5, more → 7. What makes it safe at any moment:

- one change at a time, and none without a majority: a member that is joining is finished or taken back first;
- the service grows by hosts that are healthy, and in pairs; it shrinks only when hosts were taken out by somebody. The
  loss of a host is answered by another host and never by fewer members, so a long reboot costs no copy;
- a live member is replaced by adding first; a dead one is removed first where the service takes no new member while
  one is down (etcd), and only once there is somebody to take its place: another host, or the same one where the host is
  well and only the member's data were lost;
- ids are never reused, one member per host, and zones get as equal a share as there are hosts for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

_SIZES = ((100, 7), (20, 5), (2, 3))


class Member(msgspec.Struct, frozen=True):
    """One that is in the list of members."""

    id: str  # the program's own name for it, never reused
    host: str
    voting: bool = True  # False while it learns what the others know
    running: bool = True  # it answers
    ready: bool = False  # it knows enough to vote
    dead: bool = False  # it has not answered for so long that it is given up
    emptied: bool = False  # its host is there, and what the member knew is not: it never comes back


class Place(msgspec.Struct, frozen=True):
    """A host that carries a member or could."""

    host: str
    zone: str = ""
    healthy: bool = True
    leaving: bool = False  # it is being taken out of the cluster
    unfit: str = ""  # why it cannot carry one


class Quorum(msgspec.Struct, frozen=True):
    """The service and the hosts at one moment."""

    members: tuple[Member, ...]
    places: tuple[Place, ...]  # by name; hosts that were taken out are not among them


class Move(msgspec.Struct, frozen=True):
    """One change of the membership. For "add" `id` is empty: the caller gives the next one that was never used."""

    kind: Literal["add", "promote", "remove"]
    host: str
    id: str = ""


class Decision(msgspec.Struct, frozen=True):
    """The next step, or None; and why."""

    move: Move | None
    why: str


def wanted_size(hosts: int) -> int:
    """How many members so many hosts should carry."""
    if hosts <= 0:
        return 0
    return next((size for more_than, size in _SIZES if hosts > more_than), 1)


def majority(members: int) -> int:
    return members // 2 + 1


def decide(quorum: Quorum) -> Decision:
    """The one next step: the first rule that has something to say."""
    situation = Situation(quorum)
    for rule in _RULES:
        decision = rule(situation)
        if decision is not None:
            return decision
    return Decision(None, f"members: {len(situation.voters)}, and {situation.grow_to} are wanted")


class Situation:
    """What the rules ask about."""

    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.places = {place.host: place for place in quorum.places}
        self.voters = tuple(member for member in quorum.members if member.voting)
        self.learners = tuple(member for member in quorum.members if not member.voting)
        self.running = sum(member.running for member in self.voters)
        staying = [place for place in quorum.places if not place.leaving]
        # Grown by what works, shrunk by what somebody decided: the two never pull in different directions.
        self.grow_to = wanted_size(sum(place.healthy and not place.unfit for place in staying))
        self.keep_at = max(1, wanted_size(len(staying)))

    def candidates(self) -> list[Place]:
        """Hosts that could take a member now: those in the emptiest zones first."""
        taken = {member.host for member in self.quorum.members}
        free = [
            place
            for place in self.quorum.places
            if place.healthy and not place.leaving and not place.unfit and place.host not in taken
        ]
        return sorted(free, key=lambda place: (self.crowd(place.zone), place.host))

    def crowd(self, zone: str) -> int:
        return sum(self.zone_of(member) == zone for member in self.voters if not member.dead)

    def zone_of(self, member: Member) -> str:
        place = self.places.get(member.host)
        return place.zone if place is not None else ""

    def is_leaving(self, member: Member) -> bool:
        place = self.places.get(member.host)
        return place is None or place.leaving

    def could_carry_another(self, member: Member) -> bool:
        place = self.places.get(member.host)
        return place is not None and place.healthy and not place.unfit

    def stays_alive_without(self, member: Member) -> bool:
        return self.running - member.running >= majority(len(self.voters) - 1)


Rule = Callable[[Situation], Decision | None]


def _nobody_known(now: Situation) -> Decision | None:
    return None if now.places else Decision(None, "no host is known")


def _without_majority(now: Situation) -> Decision | None:
    if now.voters and now.running < majority(len(now.voters)):
        silent = _names(member for member in now.voters if not member.running)
        # Of one whose host is silent nobody knows: it may serve while only the agent there has ended.
        text = f"only {now.running} of {len(now.voters)} members are known to run, not {silent}: nothing is changed"
        return Decision(None, text)
    return None


def _joining(now: Situation) -> Decision | None:
    """Whoever is joining comes first: it is let in, or taken back."""
    if not now.learners:
        return None
    learner = now.learners[0]
    if wrong := _why_taken_back(now, learner):
        return _remove(learner, wrong)
    if not learner.ready:
        return Decision(None, f"waiting until {learner.id} on host {learner.host} has caught up")
    return Decision(Move("promote", learner.host, learner.id), f"{learner.id} has caught up")


def _why_taken_back(now: Situation, learner: Member) -> str:
    place = now.places.get(learner.host)
    if place is None or place.leaving or learner.dead:
        return f"host {learner.host} went away before {learner.id} had joined"
    if place.unfit:
        return f"host {learner.host} cannot carry {learner.id}: {place.unfit}"
    if not learner.running and not place.healthy:
        return f"host {learner.host} fell silent before {learner.id} had joined"
    others = tuple(member for member in now.quorum.members if member.id != learner.id)
    alone = decide(Quorum(others, now.quorum.places))
    if alone.move is None and now.running == len(now.voters):
        return f"{learner.id} is no longer needed: {alone.why}"
    return ""


def _dead(now: Situation) -> Decision | None:
    """A dead member goes before its successor comes, but not before there is one, unless nobody is to succeed it."""
    for member in now.voters:
        if member.running or not (member.dead or member.host not in now.places):
            continue
        if len(now.voters) == 1:
            continue
        if now.is_leaving(member) or len(now.voters) > now.keep_at:
            return _remove(member, f"host {member.host} is gone, and so is {member.id}")
        if now.candidates():
            successor = now.candidates()[0].host
            return _remove(member, f"{member.id} on host {member.host} is dead; host {successor} takes its place")
        if member.emptied and now.could_carry_another(member):
            return _remove(member, f"{member.id} on host {member.host} has lost its data; the host gets another one")
    return None


def _surplus(now: Situation) -> Decision | None:
    if len(now.voters) <= now.keep_at:
        return None
    order = sorted(
        now.voters,
        key=lambda member: (
            not now.is_leaving(member),
            member.running,
            -now.crowd(now.zone_of(member)),
            -len(member.id),  # of equals the youngest: numbers grow, and so do the names that hold them
            tuple(-ord(letter) for letter in member.id),
        ),
    )
    why = f"{len(now.voters)} members where {now.keep_at} are wanted"
    for member in order:
        if now.stays_alive_without(member):
            return _remove(member, f"{why}: {member.id} on host {member.host} is one too many")
    return Decision(None, f"{why}, and none can go while so few answer")


def _grow(now: Situation) -> Decision | None:
    """In pairs: an even number of members survives no more losses than one less, and needs more of them to agree."""
    missing = now.grow_to - len(now.voters)
    candidates = now.candidates()
    if missing <= 0:
        return None
    if not candidates:
        return Decision(None, f"{len(now.voters)} of {now.grow_to} members: waiting for another healthy host")
    if len(now.voters) % 2 == 1 and len(candidates) < 2:
        return Decision(None, f"{len(now.voters)} of {now.grow_to} members: waiting for a second healthy host")
    return _add(now, candidates[0], f"{len(now.voters)} of {now.grow_to} members")


def _leaving(now: Situation) -> Decision | None:
    for member in now.voters:
        if not now.is_leaving(member):
            continue
        candidates = now.candidates()
        if not candidates:
            return Decision(None, f"host {member.host} cannot give up {member.id}: no other host can take its place")
        return _add(now, candidates[0], f"host {member.host}, which carries {member.id}, is leaving")
    return None


def _spread(now: Situation) -> Decision | None:
    """One that moves makes the zones more equal by at least two, so that no move is ever undone."""
    if not now.voters or not all(member.running for member in now.voters):
        return None
    crowd, fullest = max((now.crowd(now.zone_of(member)), now.zone_of(member)) for member in now.voters)
    for candidate in now.candidates():
        if now.crowd(candidate.zone) <= crowd - 2:
            return _add(now, candidate, f"{crowd} of {len(now.voters)} members are in zone {fullest or '(none)'}")
    return None


_RULES: tuple[Rule, ...] = (_nobody_known, _without_majority, _joining, _dead, _surplus, _grow, _leaving, _spread)


def _add(now: Situation, place: Place, why: str) -> Decision:
    silent = _names(member for member in now.voters if not member.running)
    if silent:
        return Decision(None, f"{why}: nobody can be added while {silent} does not answer")
    return Decision(Move("add", place.host), f"{why}: host {place.host} gets one")


def _remove(member: Member, why: str) -> Decision:
    return Decision(Move("remove", member.host, member.id), why)


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.id for member in members)
