"""The coordinator: the one agent that takes hosts into the pool and out of it, and tells what is in the pool.

It looks first and does what is missing, so it may be cut off anywhere and begun again, also by another host. What it
cannot do for one peer or volume is told and does not keep it from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.facts import POOL, PeerFact, PoolFacts, VolumeFact
from quartermaster.backends.glusterfs.looking import Looks
from quartermaster.backends.glusterfs.model import Peer, VolumeInfo
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.host.files import write_whole
from quartermaster.support.errors import HostError

OWNER_OPTION = "user.quartermaster.owner"
ADOPTED_OPTION = "user.quartermaster.adopted"  # on a volume that somebody made: who may mount it is his to say
ALLOW_OPTION = "auth.allow"
LOCK = "glusterfs-change"
LOCK_S = 100.0
AGAIN_S = 2.0  # while something is on its way
_TAKING_IN_S = 30.0
_LOOK_S = 0.2
_COUNTED = 16  # volumes whose entries are counted in one run
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
    gone: tuple[str, ...] = ()  # volumes that nobody has in his books: to be asked is to look whether they are there
    down: tuple[str, ...] = ()  # UUIDs of hosts that are silent: nobody waits for them


class PoolAgent:
    name = POOL

    def __init__(self, looks: Looks) -> None:
        self._looks = looks

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        run = _Run(context, self._looks)
        facts = await run.facts()
        told: dict[str, Any] = msgspec.to_builtins(facts)
        return {**told, "againSeconds": AGAIN_S} if _is_unsettled(run.config, facts) else told

    async def destroy_local_service(self, context: AgentContext) -> None:
        (context.directory / _SUSPECTS).unlink(missing_ok=True)


class _Run:
    """One run of the coordinator, with what it could not do."""

    def __init__(self, context: AgentContext, looks: Looks) -> None:
        self.config = msgspec.convert(context.desired, PoolConfig)
        self._context = context
        self._looks = looks
        self._gluster = Gluster(context.machine.commands)
        self._failed: dict[str, str] = {}

    async def facts(self) -> PoolFacts:
        peers = await self._taken_in()
        volumes = await self._gluster.volumes()
        self._looks.saw(self._context, volumes)
        if self.config.detach:
            peers = await self._let_go(peers, volumes)
        await self._admit(volumes)
        online = await self._gluster.online() if volumes else {}
        if await self._restart(peers, volumes, online):
            online = await self._gluster.online()
        return PoolFacts(
            peers={peer.uuid: PeerFact(peer.name, peer.connected, peer.serves, peer.state_text) for peer in peers},
            volumes=await self._volume_facts(volumes, online),
            failed=self._failed,
        )

    async def _try(self, about: str, verb: str, change: Callable[[], Awaitable[None]]) -> None:
        """One change of the pool at a time on this host; what does not work is told and not in the way of the rest."""
        await self._context.report(verb)
        try:
            async with self._context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
                await change()
        except HostError as error:
            self._failed[about] = str(error)

    async def _taken_in(self) -> tuple[Peer, ...]:
        config, gluster = self.config, self._gluster
        peers = await gluster.pool()
        known = {peer.uuid for peer in peers}
        missing = [one for one in config.peers if one.uuid not in known and one.uuid not in config.down]
        for one in missing:
            await self._try(one.uuid, f"taking {one.address} into the pool", partial(gluster.probe, one.address))
        if not missing:
            return peers
        awaited = {one.uuid for one in config.peers} - set(self._failed) - set(config.down)
        ends = asyncio.get_running_loop().time() + _TAKING_IN_S
        while True:
            peers = await gluster.pool()
            serving = {peer.uuid for peer in peers if peer.serves}
            if awaited <= serving or asyncio.get_running_loop().time() >= ends:
                return peers
            await asyncio.sleep(_LOOK_S)

    async def _let_go(self, peers: tuple[Peer, ...], volumes: Sequence[VolumeInfo]) -> tuple[Peer, ...]:
        holding = {brick.uuid: volume.name for volume in volumes for brick in volume.bricks}
        for peer in [one for one in peers if one.uuid in self.config.detach and not one.local]:
            if peer.uuid in holding:
                held = f"it has a brick of {holding[peer.uuid]}"
                self._failed[peer.uuid] = f"cannot take {peer.name} out of the pool: {held}"
                continue
            if away := self._unreached(peers):
                why = f"{away} does not answer, and would know it for ever"
                self._failed[peer.uuid] = f"cannot take {peer.name} out of the pool: {why}"
                continue
            change = partial(self._gluster.detach, peer.name, force=not peer.connected)
            await self._try(peer.uuid, f"taking {peer.name} out of the pool", change)
        return await self._gluster.pool()

    def _unreached(self, peers: tuple[Peer, ...]) -> str:
        """A member that stays and is away: what is done by force meanwhile nobody tells it when it is back."""
        staying = [one.uuid for one in self.config.peers]
        return next((one.name for one in peers if one.uuid in staying and not one.connected), "")

    async def _admit(self, volumes: Sequence[VolumeInfo]) -> None:
        allow = self.config.allow
        for volume in volumes if allow else ():
            adopted = ADOPTED_OPTION in volume.options
            if self._is_ours(volume) and not adopted and volume.options.get(ALLOW_OPTION) != allow:
                change = partial(self._gluster.set_options, volume.name, {ALLOW_OPTION: allow})
                await self._try(volume.name, f"admitting hosts to {volume.name}", change)

    async def _restart(
        self, peers: tuple[Peer, ...], volumes: Sequence[VolumeInfo], online: Mapping[str, tuple[str, ...]]
    ) -> bool:
        """Bricks that do not run although their host is there. Whether anything was tried."""
        serving = {peer.uuid for peer in peers if peer.serves}
        tried = False
        for volume in volumes:
            running = online.get(volume.name, ())
            ended = [one for one in volume.bricks if one.name not in running and one.uuid in serving]
            if ended and volume.started and self._is_ours(volume):
                tried = True
                change = partial(self._gluster.start, volume.name, force=True)
                await self._try(volume.name, f"starting bricks of {volume.name}", change)
        return tried

    def _is_ours(self, volume: VolumeInfo) -> bool:
        return volume.options.get(OWNER_OPTION) == self.config.owner

    async def _volume_facts(
        self, volumes: Sequence[VolumeInfo], online: Mapping[str, tuple[str, ...]]
    ) -> dict[str, VolumeFact]:
        """Entries are counted only where there is a reason to: each count is a command, slow where a brick is dead."""
        file = self._context.directory / _SUSPECTS
        suspects: list[str] = msgspec.json.decode(file.read_bytes()) if file.exists() else []
        found: dict[str, VolumeFact] = {}
        counted = 0
        for volume in volumes:
            running = online.get(volume.name, ())
            offline = tuple(one.name for one in volume.bricks if one.name not in running) if volume.started else ()
            fact = VolumeFact(
                bricks=tuple(brick.name for brick in volume.bricks),
                owner=volume.options.get(OWNER_OPTION, ""),
                started=volume.started,
                offline=offline,
            )
            wanted = volume.name in self.config.watch or volume.name in suspects
            if wanted and volume.started and not offline and counted < _COUNTED:
                counted += 1
                fact = await _counted(self._gluster, volume, fact)
            found[volume.name] = fact
        left = sorted(name for name, fact in found.items() if _is_suspect(fact, name in suspects))
        if left != suspects:
            write_whole(file, msgspec.json.encode(left))
        return found


def _is_suspect(fact: VolumeFact, before: bool) -> bool:
    """A brick that was away has something to catch up on; who was not counted yet stays as it is."""
    return bool(fact.offline or fact.pending or fact.split) or (before and fact.pending is None)


async def _counted(gluster: Gluster, volume: VolumeInfo, fact: VolumeFact) -> VolumeFact:
    if volume.replica == 1 and not volume.disperse:
        return replace(fact, pending=0)
    try:
        counts = await gluster.heal_counts(volume.name)
        if not all(one.connected for one in counts):
            return fact
        split = await gluster.split_files(volume.name) if any(one.split_brain for one in counts) else ()
    except HostError:
        return fact  # right after a start it cannot be asked yet
    behind = _lacking([one.pending for one in counts], volume.disperse or volume.replica)
    return replace(fact, pending=sum(one.pending for one in counts), split=split, behind=behind)


def _lacking(counts: Sequence[int], width: int) -> tuple[int, ...]:
    """A brick knows what others lack, and not what it lacks itself: of a set, those that know less than another one."""
    most = [max(counts[at - at % width : at - at % width + width]) for at in range(len(counts))]
    return tuple(at for at, count in enumerate(counts) if count < most[at])


def _is_unsettled(config: PoolConfig, facts: PoolFacts) -> bool:
    known = {uuid for uuid, peer in facts.peers.items() if peer.serves}
    missing = any(one.uuid not in known for one in config.peers)
    return bool(config.watch or facts.failed or missing) or any(not fact.healed for fact in facts.volumes.values())
