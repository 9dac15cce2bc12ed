"""The coordinator: the one agent that takes hosts into the pool and out of it, and tells what is in the pool.

It looks first and does what is missing, so it may be cut off anywhere and begun again, also by another host. What it
cannot do for one peer or volume is told and does not keep it from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.counting import compared, counted
from quartermaster.backends.glusterfs.facts import POOL, PeerFact, PoolFacts, VolumeFact
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.model import Peer, VolumeInfo
from quartermaster.backends.glusterfs.promises import promised_by
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host.files import write_whole
from quartermaster.resources.orchestration import Assignment
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError, HostError, StoreError
from quartermaster.support.tasks import TaskGroup

OWNER_OPTION = "user.quartermaster.owner"
ADOPTED_OPTION = "user.quartermaster.adopted"  # on a volume that somebody made: who may mount it is his to say
ALLOW_OPTION = "auth.allow"
LOCK = "glusterfs-change"
LOCK_S = 100.0
AGAIN_S = 2.0  # while something is on its way
_TAKING_IN_S = 30.0
_LOOK_S = 0.1
_HEAR_S = 5.0
_COUNTED = 16  # volumes whose entries are counted in one run
_COMPARED = 4  # the same for volumes with a dead brick, of which each takes ten seconds
_LOOKS_S = 60.0  # for all that are counted, and again for all that are compared
_RESTARTED = 16  # the same for volumes whose bricks are started
_CHANGED = 64  # the same for volumes whose options are set, and for those that are deleted again
# A run that is cut off has told nothing. So none of its changes begins later than this, the last of them has its own
# time, and after RUN_S nothing is counted any more: the assignment has its deadline another while later.
_CHANGES_S = 40.0
_SHARE_S = 20.0  # of that for changes of one kind
_CHANGE_LOCK_S = 60.0
RUN_S = 200.0
# So often, and for so long, a brick is started until another glusterd has to do that: one whose disk is dying is told
# of by its node before.
_STARTS, _STUCK_S = 3, 15.0
_HEAL_AGAIN_S = 10.0
_FILL_AGAIN_S = 30.0
_QUIET_S = 300.0
_QUIET_COUNTS = 60
_SUSPECTS = "suspects.json"


class PeerWanted(msgspec.Struct, frozen=True):
    address: str
    uuid: str


class PoolConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    owner: str
    peers: tuple[PeerWanted, ...] = ()
    detach: tuple[str, ...] = ()  # UUIDs
    allow: str = ""
    watch: tuple[str, ...] = ()  # volumes that are to be counted
    compare: tuple[str, ...] = ()  # volumes with a dead brick, whose others are to be compared
    rooted: tuple[str, ...] = ()  # new bricks whose roots were healed
    clear: tuple[str, ...] = ()  # those among them of which a count says what they lack: to be asked is to count anew
    empty: tuple[str, ...] = ()  # volumes with a new brick whose root was not healed yet
    gone: tuple[str, ...] = ()  # volumes that nobody has in his books: to be asked is to look whether they are there
    ending: tuple[str, ...] = ()  # ids of those that are being deleted: to be asked is to look whether they are there
    ended: tuple[str, ...] = ()  # ids of those among them that were deleted, and that one who was away brought back
    down: tuple[str, ...] = ()  # UUIDs of hosts that are silent: nobody waits for them
    away: tuple[str, ...] = ()  # UUIDs of those among them whose data may move: to be asked is to look what runs there
    lost: tuple[str, ...] = ()  # UUIDs of those among them that somebody has given up
    dead: tuple[str, ...] = ()  # address:directory of bricks that never start there, on hosts that live


class _Waits(msgspec.Struct, frozen=True):
    """Entries of a volume that are to be healed, and since when they do not get fewer."""

    count: int
    since: float


class _Starts(msgspec.Struct, frozen=True):
    """Of a brick that does not run all the same: how often gluster said that it was started, and since when."""

    count: int
    since: float


class _Kept(msgspec.Struct):
    """From one run to the next."""

    waits: dict[str, _Waits] = {}  # by volume
    empty: dict[str, float] = {}  # volume with a brick that is not filled → since when, or when that was asked for
    quiet: dict[str, tuple[tuple[str, ...], float, int]] = {}  # volume → new bricks, since when, counts of 0
    turns: dict[str, str] = {}  # kind of change → the last volume that had its turn
    slow: set[str] = set()  # kinds of change that left no time for others
    starts: dict[str, _Starts] = {}  # brick that does not run → how that was answered
    counted: str = ""  # the last volume whose entries were counted
    compared: str = ""  # the last volume whose copies were compared

    def forget_all_but(self, volumes: Container[str]) -> None:
        for known in (self.waits, self.empty, self.quiet):
            for name in [one for one in known if one not in volumes]:
                del known[name]


class PoolAgent:
    name = POOL

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._kept: dict[str, _Kept] = {}  # by host, for in a model several live in one process

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        run = _Run(context, self._looks, self._kept.setdefault(context.host, _Kept()))
        facts = await run.facts()
        told: dict[str, Any] = msgspec.to_builtins(facts)
        return {**told, "againSeconds": AGAIN_S} if run.is_cut_short or _is_unsettled(run.config, facts) else told

    async def destroy_local_service(self, context: AgentContext) -> None:
        (context.directory / _SUSPECTS).unlink(missing_ok=True)


class _Run:
    """One run of the coordinator, with what it could not do."""

    def __init__(self, context: AgentContext, looks: Looks, kept: _Kept) -> None:
        self.config = msgspec.convert(context.desired, PoolConfig)
        self._context = context
        self._looks = looks
        self._gluster = Gluster(context.machine.commands)
        self._kept = kept
        self._waits = kept.waits
        self._failed: dict[str, str] = {}
        self._kind = ""  # of the last change
        self._began = asyncio.get_running_loop().time()
        self.is_cut_short = False  # something is left that the next run does

    async def facts(self) -> PoolFacts:
        peers, volumes = await self._taken_in()
        self._looks.saw(self._context, volumes)
        if self.config.ended and all(peer.connected for peer in peers):
            volumes = await self._end(volumes)
        if self.config.detach:
            peers = await self._let_go(peers, volumes)
        await self._admit(volumes)
        online = await self._gluster.online(volumes) if volumes else {}
        started = await self._restart(peers, volumes, online)
        self._leave_time()
        if started:
            online = await self._gluster.online(volumes)
        return PoolFacts(
            peers={peer.uuid: PeerFact(peer.name, peer.connected, peer.serves, peer.state_text) for peer in peers},
            volumes=await self._volume_facts(volumes, online),
            failed=self._failed,
        )

    async def _try(self, about: str, verb: str, change: Callable[[], Awaitable[None]]) -> None:
        """One change of the pool at a time on this host; what does not work is told and not in the way of the rest."""
        await self._context.report(verb)
        try:
            async with self._context.machine.locks.hold(LOCK, timeout_s=_CHANGE_LOCK_S):
                await change()
        except (HostError, DeadlineError) as error:
            self._failed[about] = str(error)

    def _passed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def _may_change(self, kind: str) -> bool:
        """Whether another change of this kind may begin in this run; else the next one goes on with it."""
        if kind in self._kept.slow or self._passed_s() >= _CHANGES_S:
            self.is_cut_short = True
            return False
        self._kind = kind
        return True

    def _turns(self, kind: str, volumes: Iterable[VolumeInfo], most: int) -> Iterator[VolumeInfo]:
        """Those that have their turn in this run."""
        ends = self._passed_s() + _SHARE_S
        for number, volume in enumerate(_in_turn(volumes, self._kept.turns.get(kind, ""))):
            if number == most or self._passed_s() >= ends:
                self.is_cut_short = True
                return
            if not self._may_change(kind):
                return
            self._kept.turns[kind] = volume.name
            yield volume

    def _leave_time(self) -> None:
        """Changes of a kind that left no time for others are not tried until these had theirs."""
        if self._passed_s() < _CHANGES_S:
            self._kept.slow.clear()
        elif self._kind:
            self._kept.slow.add(self._kind)

    async def _look(self) -> tuple[tuple[Peer, ...], tuple[VolumeInfo, ...]]:
        async with TaskGroup() as group:
            peers, volumes = group.start(self._gluster.pool()), group.start(self._gluster.volumes())
        return peers.result(), volumes.result()

    async def _taken_in(self) -> tuple[tuple[Peer, ...], tuple[VolumeInfo, ...]]:
        """What is there when all that should be in the pool are, or do not come."""
        peers, volumes = await self._look()
        known = {peer.uuid for peer in peers}
        await self._hear()
        if not self._missing(known):
            return peers, volumes
        ends = self._passed_s() + _TAKING_IN_S
        while True:
            while (missing := self._missing(known)) and self._passed_s() < ends and self._may_change("take in"):
                one = missing[0]
                known.add(one.uuid)
                change = partial(self._gluster.probe, one.address)
                await self._try(one.uuid, f"taking {one.address} into the pool", change)
                await self._hear()
            peers, volumes = await self._look()
            awaited = {one.uuid for one in self.config.peers} & known - set(self._failed) - set(self.config.down)
            serving = {peer.uuid for peer in peers if peer.serves}
            if awaited <= serving or self._passed_s() >= ends:
                return peers, volumes
            await asyncio.sleep(_LOOK_S)
            await self._hear()

    def _missing(self, known: Container[str]) -> list[PeerWanted]:
        return [one for one in self.config.peers if one.uuid not in known and one.uuid not in self.config.down]

    async def _hear(self) -> None:
        """Nodes come up one after the other: who was named meanwhile is taken in by this run, not by the next; and who
        is not wanted any more is left alone.
        """
        own = self._context.assignment
        if own is None:
            return
        with suppress(StoreError, TimeoutError):
            async with within(_HEAR_S):
                newest = await self._context.store.get(Assignment, own.metadata.name, own.metadata.namespace)
            if newest.metadata.uid == own.metadata.uid:
                wanted = msgspec.convert(newest.spec.desired or {"owner": self.config.owner}, PoolConfig)
                members = {name: getattr(wanted, name) for name in ("peers", "detach", "down", "lost")}
                self.config = replace(self.config, **members)

    async def _let_go(self, peers: tuple[Peer, ...], volumes: Sequence[VolumeInfo]) -> tuple[Peer, ...]:
        holding = {brick.uuid: volume.name for volume in volumes for brick in volume.bricks}
        for peer in [one for one in peers if one.uuid in self.config.detach and not one.local]:
            if peer.uuid in holding:
                held = f"it has a brick of {holding[peer.uuid]}"
                self._failed[peer.uuid] = f"cannot take {peer.name} out of the pool: {held}"
                continue
            if away := self._untold(peers):
                why = f"{away} does not answer, and would know it for ever"
                self._failed[peer.uuid] = f"cannot take {peer.name} out of the pool: {why}"
                continue
            if not self._may_change("let go"):
                break
            # By force only where another one that is away is to go as well: else gluster looks after it better than we.
            force = any(not one.connected for one in peers if one.uuid != peer.uuid)
            change = partial(self._gluster.detach, peer.name, force=force)
            await self._try(peer.uuid, f"taking {peer.name} out of the pool", change)
        return await self._gluster.pool()

    def _untold(self, peers: tuple[Peer, ...]) -> str:
        """A member that is away and is not to go: when it is back it tells the others of whom it was not told. Should
        one come back that was given up, whoever it tells of is let go again. Of two that are to go and are away neither
        waits for the other: nobody listens to one that was let go.
        """
        going = {*self.config.detach, *self.config.lost}
        return next((one.name for one in peers if one.uuid not in going and not one.connected), "")

    async def _end(self, volumes: Sequence[VolumeInfo]) -> tuple[VolumeInfo, ...]:
        """Deleted once, by their id: a host that did not hear of it has told the others that they are there."""
        ended = [one for one in volumes if one.id in self.config.ended and self._is_ours(one)]
        for volume in self._turns("end", ended, _CHANGED):
            if volume.started:
                change = partial(self._stop_unused, volume.name)
                await self._try(volume.name, f"stopping {volume.name}, which was deleted", change)
            if volume.name in self._failed or not self._may_change("end"):
                continue
            change = partial(self._gluster.delete, volume.name)
            await self._try(volume.name, f"deleting {volume.name} again", change)
        return await self._gluster.volumes()

    async def _stop_unused(self, name: str) -> None:
        """Its clients saw it go once; who has mounted it since wants it."""
        if users := await self._gluster.users(name):
            raise HostError(f"cannot stop {name}, which was deleted once: it is in use ({', '.join(sorted(users))})")
        await self._gluster.stop(name)

    async def _admit(self, volumes: Sequence[VolumeInfo]) -> None:
        """Whoever is not admitted yet to some of them cannot mount these yet; nobody else waits for it."""
        lacking = [one for one in volumes if self.config.allow and self._lacks_hosts(one)]
        for volume in self._turns("admit", lacking, _CHANGED):
            change = partial(self._admit_to, volume.name)
            await self._try(volume.name, f"admitting hosts to {volume.name}", change)

    def _lacks_hosts(self, volume: VolumeInfo) -> bool:
        is_made = self._is_ours(volume) and ADOPTED_OPTION not in volume.options
        return is_made and volume.options.get(ALLOW_OPTION) != self.config.allow

    async def _admit_to(self, name: str) -> None:
        """While a brick is replaced gluster itself admits every peer, and takes that back in the end."""
        found = await self._gluster.volume(name)
        if found is not None and found.options.get(ALLOW_OPTION) != self.config.allow:
            await self._gluster.set_options(name, {ALLOW_OPTION: self.config.allow})

    async def _restart(
        self, peers: tuple[Peer, ...], volumes: Sequence[VolumeInfo], online: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Bricks that do not run although their host is there. Whether anything was tried."""
        serving = {peer.uuid for peer in peers if peer.serves}
        ended: dict[str, list[str]] = {}
        for volume in volumes:
            there = [one.name for one in volume.bricks if one.uuid in serving and not self._is_dead(one.name)]
            lost = [name for name in there if name not in online.get(volume.name, ())]
            if lost and volume.started and self._is_ours(volume):
                ended[volume.name] = lost
        known, now = self._kept.starts, asyncio.get_running_loop().time()
        self._kept.starts = {brick: known.get(brick, _Starts(0, now)) for lost in ended.values() for brick in lost}
        for volume in self._turns("restart", [one for one in volumes if one.name in ended], _RESTARTED):
            name = volume.name
            await self._try(name, f"starting bricks of {name}", partial(self._start_bricks_of, name))
            for brick in ended[name] if name not in self._failed else ():
                before = self._kept.starts[brick]
                self._kept.starts[brick] = replace(before, count=before.count + 1)
        return bool(ended)

    def _is_stuck(self, brick: str) -> bool:
        starts, now = self._kept.starts.get(brick), asyncio.get_running_loop().time()
        return starts is not None and starts.count >= _STARTS and now - starts.since >= _STUCK_S

    def _is_dead(self, brick: str) -> bool:
        return brick.rpartition("/")[0] in self.config.dead

    async def _start_bricks_of(self, name: str) -> None:
        """Whoever deletes it may have stopped it since it was looked at."""
        found = await self._gluster.volume(name)
        if found is not None and found.started:
            await self._gluster.start(name, force=True)

    def _is_ours(self, volume: VolumeInfo) -> bool:
        return volume.options.get(OWNER_OPTION) == self.config.owner

    async def _volume_facts(
        self, volumes: Sequence[VolumeInfo], online: Mapping[str, Mapping[str, str]]
    ) -> dict[str, VolumeFact]:
        """Entries are counted only where there is a reason to: each count is a command, slow where a brick is dead."""
        self._kept.forget_all_but({volume.name for volume in volumes})
        file = self._context.directory / _SUSPECTS
        suspects: list[str] = msgspec.json.decode(file.read_bytes()) if file.exists() else []
        found = {volume.name: self._fact(volume, online.get(volume.name, {})) for volume in volumes}
        there = [volume for volume in volumes if volume.started and not found[volume.name].offline]
        wanted = [one for one in there if one.name in self.config.watch or one.name in suspects]
        await self._count(wanted, found)
        lacking = [volume for volume in volumes if found[volume.name].offline]
        await self._compare([one for one in lacking if one.name in self.config.compare], found)
        own = [volume.name for volume in volumes if self._is_ours(volume)]
        left = sorted(name for name in own if _is_suspect(found[name], name in suspects))
        if left != suspects:
            write_whole(file, msgspec.json.encode(left))
        return found

    def _fact(self, volume: VolumeInfo, running: Mapping[str, str]) -> VolumeFact:
        away = [at for at, one in enumerate(volume.bricks) if volume.started and one.name not in running]
        return VolumeFact(
            bricks=tuple(brick.name for brick in volume.bricks),
            owner=volume.options.get(OWNER_OPTION, ""),
            id=volume.id,
            started=volume.started,
            offline=tuple(away),
            stuck=tuple(at for at in away if self._is_stuck(volume.bricks[at].name)),
            processes=tuple(running.get(brick.name, "") for brick in volume.bricks),
            promised=promised_by(volume),
            peers=self._peers(volume),
        )

    def _for_looks_s(self) -> float:
        return max(0.0, min(_LOOKS_S, RUN_S - self._passed_s()))

    async def _count(self, wanted: Sequence[VolumeInfo], found: dict[str, VolumeFact]) -> None:
        with suppress(TimeoutError):
            async with within(self._for_looks_s()):
                for volume in _in_turn(wanted, self._kept.counted)[:_COUNTED]:
                    self._kept.counted = volume.name
                    found[volume.name] = await self._count_one(volume, found[volume.name])
                    await self._have_healed(volume, found[volume.name])

    async def _compare(self, wanted: Sequence[VolumeInfo], found: dict[str, VolumeFact]) -> None:
        with suppress(TimeoutError):
            async with within(self._for_looks_s()):
                for volume in _in_turn(wanted, self._kept.compared)[:_COMPARED]:
                    self._kept.compared = volume.name
                    found[volume.name] = await compared(self._gluster, volume, found[volume.name])

    def _peers(self, volume: VolumeInfo) -> tuple[str, ...]:
        """Told only where names of bricks do not say it: there may be thousands of them."""
        known = {one.uuid: one.address for one in self.config.peers}
        said = all(known.get(brick.uuid) == brick.name.partition(":/")[0] for brick in volume.bricks)
        return () if said else tuple(brick.uuid for brick in volume.bricks)

    async def _count_one(self, volume: VolumeInfo, fact: VolumeFact) -> VolumeFact:
        """With whether nothing was to be healed for so long that no count can have missed it every time."""
        found, now = await counted(self._gluster, volume, fact), asyncio.get_running_loop().time()
        new = tuple(brick for brick in fact.bricks if brick in self.config.rooted)
        known, since, counts = self._kept.quiet.pop(volume.name, ((), now, 0))
        if found.pending != 0 or not new:
            return found
        if known != new:
            since, counts = now, 0
        self._kept.quiet[volume.name] = (new, since, counts + 1)
        return replace(found, quiet=counts >= _QUIET_COUNTS and now - since >= _QUIET_S)

    async def _heal(self, name: str, *, full: bool = False) -> None:
        """A brick that is not there keeps it from being begun, and is told as such. So does a host whose daemon that
        heals does not run, be it that it has no brick: one that was taken in after the volume was made. That is started
        with the bricks, and the next run asks again.
        """
        try:
            await self._gluster.heal(name, full=full)
        except HostError:
            with suppress(HostError):
                async with self._context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                    await self._start_bricks_of(name)

    async def _have_filled(self, volume: VolumeInfo) -> None:
        """gluster begins with it when a brick comes, and not again where that did not work: nothing is marked yet."""
        now = asyncio.get_running_loop().time()
        if volume.name not in self.config.empty or not self._is_ours(volume):
            self._kept.empty.pop(volume.name, None)
        elif now - self._kept.empty.setdefault(volume.name, now) >= _FILL_AGAIN_S:
            self._kept.empty[volume.name] = now
            await self._heal(volume.name, full=True)

    async def _have_healed(self, volume: VolumeInfo, fact: VolumeFact) -> None:
        """Where it does not get less by itself: what could not be healed at once is tried again only after minutes."""
        await self._have_filled(volume)
        now, before = asyncio.get_running_loop().time(), self._waits.pop(volume.name, None)
        if not fact.pending or fact.split or not self._is_ours(volume):
            return
        if before is not None and fact.pending >= before.count and now - before.since < _HEAL_AGAIN_S:
            self._waits[volume.name] = before
            return
        self._waits[volume.name] = _Waits(fact.pending, now)
        if before is not None and fact.pending >= before.count:
            await self._heal(volume.name)


def _in_turn(volumes: Iterable[VolumeInfo], last: str) -> list[VolumeInfo]:
    """Where there are many, those that had no turn yet come first: what fails or takes long is not in the way of the
    rest.
    """
    return sorted(volumes, key=lambda volume: (volume.name <= last, volume.name))


def _is_suspect(fact: VolumeFact, before: bool) -> bool:
    """A brick that was away has something to catch up on; who was not counted yet stays as it is."""
    return bool(fact.offline or fact.pending or fact.split) or (before and fact.pending is None)


def _is_unsettled(config: PoolConfig, facts: PoolFacts) -> bool:
    known = {uuid for uuid, peer in facts.peers.items() if peer.serves}
    missing = any(one.uuid not in known for one in config.peers)
    own = [fact for fact in facts.volumes.values() if fact.owner == config.owner]
    # One that is stopped changes no more until somebody starts it.
    return bool(config.watch or facts.failed or missing) or any(fact.started and not fact.healed for fact in own)
