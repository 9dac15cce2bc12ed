"""The steps by which members come and go. Each is written down before it is taken, and looked at again before that.

a host is chosen ─▶ preparing ─▶ etcd is installed, its certificates are there ─▶ joining ─▶ learner ─▶ it has
caught up ─▶ serving ─▶ removing ─▶ no member any more ─▶ the host has cleared up ─▶ forgotten
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from quartermaster.backends.assigning import Assigning, as_plain, is_done
from quartermaster.backends.etcd.agent import AGENT
from quartermaster.backends.etcd.member import DATA_GONE, QUOTA_BYTES, MemberConfig
from quartermaster.backends.etcd.memory import Book, Memory, Seat, with_initial, with_new_seat, with_seat, without_seat
from quartermaster.backends.etcd.rights import Rights
from quartermaster.backends.etcd.sight import Sight, caught_up, may_go, places_of, quorum_of, wrong_address
from quartermaster.backends.etcd.tool import CLIENT_PORT, PEER_PORT, EtcdTool
from quartermaster.engine.controller import Scope
from quartermaster.planning.cluster import Desired
from quartermaster.planning.health import HostHealth
from quartermaster.planning.quorum import Move, Place, Quorum, decide
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import FAILED, Assignment, Host
from quartermaster.support.errors import RefusedError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

_STEPS = 8  # in one refresh; what is left is done in the next
_log = logger("backends.etcd")


class EtcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    look_s: float = 15.0  # between two looks while nothing moves
    step_s: float = 1.0  # while something does
    dead_after_s: float = 600.0  # of a member's silence
    prepare_s: float = 120.0  # for a host to make ready
    unfit_s: float = 300.0  # how long a host that could not is left alone
    settle_s: float = 30.0  # after one has joined, until a live one may go: clients have learnt of the new one by then
    client_port: int = CLIENT_PORT
    peer_port: int = PEER_PORT
    quota: int = QUOTA_BYTES
    flags: tuple[str, ...] = ()


class Membership:
    """Of one term of one leader. `certified` says whether a host has the certificates of a member."""

    def __init__(
        self,
        scope: Scope,
        health: HostHealth,
        tool: EtcdTool,
        rights: Rights,
        *,
        namespace: str,
        certified: Callable[[str], bool],
        settings: EtcdSettings,
    ) -> None:
        self._events = scope.events
        self._hosts = scope.caches.of(Host, namespace)
        self._assigning = Assigning(scope, namespace)
        self._health = health
        self._tool = tool
        self._rights = rights
        self._namespace = namespace
        self._certified = certified
        self._settings = settings
        self._grown_at = asyncio.get_running_loop().time()  # as far as a new leader knows, just now
        self._silent_since: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._unfit: dict[str, tuple[str, float]] = {}
        self._misplaced: dict[str, str] = {}
        self._waits = False
        self.all_answer = True  # in the latest look
        self.says = ""  # why the latest pass ended

    async def advance(self, book: Book) -> bool:
        """Take all steps that can be taken now; whether there are more to come."""
        self._waits = False
        for _ in range(_STEPS):
            sight = await self._look()
            await book.write(caught_up(book.memory, sight))
            if strangers := sight.strangers(book.memory):
                self._say(book, f"etcd has members that this program did not add: {', '.join(strangers)}")
                return False
            quorum = self._quorum(book.memory, sight)
            if not await self._step(book, sight, quorum):
                break
        for seat in book.memory.seats:
            if seat.phase == "serving":
                await self._assign(seat, begun=True)
        return any(seat.phase != "serving" for seat in book.memory.seats) or self._waits

    async def _look(self) -> Sight:
        listed = await self._tool.members()
        async with TaskGroup() as group:  # those who do not answer are waited for at the same time
            asked = {entry.id: [group.start(self._tool.status(url)) for url in entry.client_urls] for entry in listed}
        said = {member: [task.result() for task in tasks] for member, tasks in asked.items()}
        # Whoever else answers there says nothing of this member.
        running = {member: any(one is not None and one.id == member for one in said[member]) for member in said}
        self.all_answer = all(running.values())
        return Sight(listed, running)

    def _quorum(self, memory: Memory, sight: Sight) -> Quorum:
        now = asyncio.get_running_loop().time()
        dead: dict[str, None] = {}
        emptied: dict[str, None] = {}
        for seat in memory.seats:
            entry = sight.entry(seat)
            if entry is None or sight.running.get(entry.id):
                self._silent_since.pop(seat.id, None)
                continue
            if self._is_emptied(seat):
                emptied[seat.id] = None
            since = self._silent_since.setdefault(seat.id, now)
            # One that joins has its whole time for it, however soon a silent one is given up.
            patience_s = self._settings.prepare_s if seat.phase == "joining" else self._settings.dead_after_s
            if now - since >= patience_s or self._is_lost(seat.host):
                dead[seat.id] = None
        unfit = {host: why for host, (why, until) in self._unfit.items() if now < until}
        self._warn_of_addresses(memory)
        places = places_of(self._hosts.list(), self._health, memory, unfit)
        return quorum_of(memory, sight, places, frozenset(dead), frozenset(emptied))

    def _warn_of_addresses(self, memory: Memory) -> None:
        """Once for each host and reason; that a host has no address yet is no news."""
        for host in self._hosts.list():
            name = host.metadata.name
            wrong = wrong_address(host, memory) if host.spec.addresses else ""
            if wrong and self._misplaced.get(name) != wrong:
                _log.warning("a host gets no member of etcd", host=name, reason=wrong)
                self._events.record(host, "WrongAddress", f"it gets no member of etcd: {wrong}", type="Warning")
            self._misplaced[name] = wrong

    def _is_emptied(self, seat: Seat) -> bool:
        """Its host says that the data of this very member are gone: it can never come back."""
        known = self._assigning.get(seat.host, AGENT)
        if known is None or (known.spec.desired or {}).get("member") != seat.id:
            return False
        return known.status.state == FAILED and _is_current(known) and known.status.reason == DATA_GONE

    def _is_lost(self, host: str) -> bool:
        """Nobody waits for it: it was silent for too long, or somebody has taken it out."""
        known = self._hosts.get(Key(self._namespace, host)) is not None
        return not known or self._health.of(host).lost

    async def _step(self, book: Book, sight: Sight, quorum: Quorum) -> bool:
        """What was begun is finished first; else the next move is begun. Whether to look again at once."""
        for seat in book.memory.seats:
            if seat.phase == "removing":
                if sight.entry(seat) is not None:
                    return await self._remove(book, sight, quorum, seat)
                if await self._clear_up(book, seat):
                    return True
            elif seat.phase == "preparing":
                return await self._prepare(book, sight, quorum, seat)
            elif seat.phase == "joining" and sight.entry(seat) is None:
                return await self._join(book, sight, quorum, seat)
            elif seat.phase == "joining":
                await self._start(book, sight, seat)
        decision = decide(quorum)
        self._waits = decision.move is not None and not self._may_be_missed(book.memory, sight, decision.move)
        self._say(book, f"{decision.why}; it stays until all clients know the others" if self._waits else decision.why)
        if decision.move is None or self._waits:
            return False
        return await self._begin(book, sight, decision.move, decision.why)

    async def _begin(self, book: Book, sight: Sight, move: Move, why: str) -> bool:
        if move.kind == "add":
            await book.write(with_new_seat(book.memory, move.host, self._config(move.host), why))
            return True
        seat = book.memory.find(move.id)
        entry = sight.entry(seat) if seat is not None else None
        if seat is None or entry is None:
            return False
        if move.kind == "remove":
            await book.write(with_seat(book.memory, replace(seat, phase="removing", why=why)))
            return True
        if not await self._tool.promote(entry.id):
            return False
        self._grown_at = asyncio.get_running_loop().time()
        await self._rights.may_lead(seat)
        await book.write(with_seat(book.memory, replace(seat, phase="serving", why=why)))
        return True

    def _may_be_missed(self, memory: Memory, sight: Sight, move: Move) -> bool:
        """Whether a member can go without being all that somebody knows of etcd.

        Nobody is served by one that only learns or does not run.
        """
        seat = memory.find(move.id) if move.kind == "remove" else None
        entry = sight.entry(seat) if seat is not None else None
        if entry is None or entry.learner or not sight.running.get(entry.id, False):
            return True
        return asyncio.get_running_loop().time() - self._grown_at >= self._settings.settle_s

    async def _prepare(self, book: Book, sight: Sight, quorum: Quorum, seat: Seat) -> bool:
        """The host shows that a member could run there before etcd hears of it."""
        if not_wanted := self._why_not(quorum, seat):
            return await self._give_up(book, seat, not_wanted)
        unfit = self._why_unfit(quorum, seat)
        assignment = None if unfit else await self._assign(seat, prepare=True)
        if assignment is not None and assignment.status.state == FAILED and _is_current(assignment):
            unfit = assignment.status.message or "it could not make ready"
        if unfit:
            self._pass_over(seat.host, unfit)
            return await self._give_up(book, seat, unfit)
        if assignment is None or not is_done(assignment) or not self._certified(seat.host):
            return False
        joining = replace(seat, phase="joining")
        await book.write(with_seat(book.memory, joining))
        return await self._join(book, sight, quorum, joining)

    def _why_not(self, quorum: Quorum, seat: Seat) -> str:
        """Why the host that was chosen is not to get a member after all, through no fault of its own: one that was
        silent for a moment may be chosen again at once.
        """
        place = _place_of(quorum, seat.host)
        if place is None or place.leaving or not place.healthy:
            return f"host {seat.host} is no longer there"
        if place.unfit:
            return ""
        move = decide(quorum).move
        return "" if move is not None and move.kind == "add" else "another member is not needed any more"

    def _why_unfit(self, quorum: Quorum, seat: Seat) -> str:
        now = asyncio.get_running_loop().time()
        place = _place_of(quorum, seat.host)
        if place is not None and place.unfit:
            return place.unfit
        if now - self._began.setdefault(seat.id, now) > self._settings.prepare_s:
            return f"host {seat.host} did not get ready within {self._settings.prepare_s:g} s"
        return ""

    def _pass_over(self, host: str, why: str) -> None:
        self._unfit[host] = (why, asyncio.get_running_loop().time() + self._settings.unfit_s)

    async def _give_up(self, book: Book, seat: Seat, why: str) -> bool:
        _log.warning("a host does not get a member of etcd", host=seat.host, member=seat.id, reason=why)
        self._events.record(book.object, "MemberGivenUp", f"{seat.id} on host {seat.host}: {why}", type="Warning")
        await book.write(with_seat(book.memory, replace(seat, phase="removing", why=why)))
        return True

    async def _join(self, book: Book, sight: Sight, quorum: Quorum, seat: Seat) -> bool:
        """etcd does not list it: it was never added, or it was and is gone, and then its name is used up."""
        known = self._assigning.get(seat.host, AGENT)
        started = known is not None and (known.spec.desired or {}).get("member") == seat.id
        if started and known is not None and not (known.spec.desired or {}).get("prepare"):
            self._pass_over(seat.host, "etcd does not know it any more")
            return await self._give_up(book, seat, "etcd does not know it any more")
        move = decide(quorum).move
        if move is None or move.kind != "add":
            return await self._give_up(book, seat, "another member is not needed any more")
        if (other := sight.has_address_of(seat)) is not None:
            taken = f"{other.name or 'another member'} is at {seat.config.address}"
            self._pass_over(seat.host, taken)
            return await self._give_up(book, seat, taken)
        try:
            await self._tool.add_learner(seat.config.peer_url)
        except RefusedError as error:
            # For some seconds after each change, until all have been connected for a while.
            self._say(book, f"etcd does not take {seat.id} yet: {error.message}")
            return False
        return True

    async def _start(self, book: Book, sight: Sight, seat: Seat) -> None:
        """etcd lists it: the host may start it; if it cannot, another host is looked for."""
        if not seat.config.initial:
            seat = with_initial(seat, sight.listed)
            await book.write(with_seat(book.memory, seat))
        entry = sight.entry(seat)
        assignment = await self._assign(seat, begun=entry is not None and bool(entry.name))
        if assignment is not None and assignment.status.state == FAILED and _is_current(assignment):
            self._pass_over(seat.host, assignment.status.message or "it could not start")

    async def _remove(self, book: Book, sight: Sight, quorum: Quorum, seat: Seat) -> bool:
        entry = sight.entry(seat)
        if entry is None or not may_go(quorum, seat.id):
            self._say(book, f"{seat.id} cannot be removed while so few members answer")
            return False
        await self._tool.remove(entry.id)
        return True

    async def _clear_up(self, book: Book, seat: Seat) -> bool:
        """The host stops it and puts its data aside; then its host loses the right to lead, and it is forgotten."""
        if not await self._assigning.retire(seat.host, AGENT, lost=self._is_lost(seat.host)):
            return False
        await self._rights.may_not_lead(seat)
        await book.write(without_seat(book.memory, seat.id))
        return True

    async def _assign(self, seat: Seat, *, prepare: bool = False, begun: bool = False) -> Assignment | None:
        config = msgspec.to_builtins(replace(seat.config, prepare=prepare, begun=begun))
        return await self._assigning.ensure(Desired(seat.host, AGENT, as_plain(config)))

    def _config(self, host: str) -> MemberConfig:
        found = self._hosts.get(Key(self._namespace, host))
        address = found.spec.addresses[0] if found is not None and found.spec.addresses else ""
        return MemberConfig(
            member="",
            address=address,
            client_port=self._settings.client_port,
            peer_port=self._settings.peer_port,
            quota=self._settings.quota,
            flags=self._settings.flags,
        )

    def _say(self, book: Book, why: str) -> None:
        """Once for each thing that there is to say."""
        if why != self.says:
            self.says = why
            _log.info("etcd", decision=why)
            self._events.record(book.object, "Membership", why)


def _place_of(quorum: Quorum, host: str) -> Place | None:
    return next((one for one in quorum.places if one.host == host), None)


def _is_current(assignment: Assignment) -> bool:
    return assignment.status.observed_generation == assignment.spec.generation
