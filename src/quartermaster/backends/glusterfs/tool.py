"""The `gluster` command line, each verb wrapped once: typed answers, a deadline for each, and patience with its lock.

GlusterFS takes one change at a time in a whole pool and refuses the second; that is waited for, within the deadline of
the command. Everything else that it refuses is a GlusterError with its own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from quartermaster.backends.glusterfs import parsing
from quartermaster.backends.glusterfs.model import HealCount, Peer, QuotaLimit, VolumeInfo
from quartermaster.backends.glusterfs.reasons import USED_BEFORE
from quartermaster.host import Command, Commands, Tool, register
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import HostError

T = TypeVar("T")

CLIENT_PACKAGE = "glusterfs-client"
SERVER_PACKAGE = "glusterfs-server"
LOOK_S = 30.0
CHANGE_S = 100.0
HEAL_S = 60.0  # a brick that does not answer costs it ten seconds
_ANSWER_BYTES = 64 << 20  # of ten hosts a volume takes 9 kB in `volume status all`: some thousands of them
_BUSY = ("Another transaction is in progress", "Locking failed", "Lock timed out", "transaction timed out")
_PATIENCE = Backoff(first_s=0.2, limit_s=2.0)
_USERS = ("fuse", "gfapi")  # all others that are connected to bricks are gluster's own daemons
_NOT_THERE = "does not exist"
_NOT_STARTED = "is not started"
_NAME_TAKEN = "already exists"
_USED_BEFORE = ("already part of a volume", "Brick may be containing or be contained by an existing brick")

register(
    Tool("glusterd", SERVER_PACKAGE, "runs a GlusterFS node"),
    Tool("gluster", SERVER_PACKAGE, "manages GlusterFS pools and volumes"),
    Tool("mount.glusterfs", CLIENT_PACKAGE, "mounts GlusterFS volumes"),
)


class GlusterError(HostError):
    """What gluster refused. `words` are its own."""

    def __init__(self, message: str, words: str = "", *, hint: str = "") -> None:
        used_before = any(one in words for one in _USED_BEFORE)
        super().__init__(message, hint=hint, reason=USED_BEFORE if used_before else "")
        self.words = words

    @property
    def brick_was_used(self) -> bool:
        """A directory that was a brick once is never one again."""
        return self.reason == USED_BEFORE

    @property
    def name_is_taken(self) -> bool:
        return _NAME_TAKEN in self.words


class Gluster:
    """The gluster of one host: of this one, or of a `server` that is only looked at."""

    def __init__(self, commands: Commands, server: str = "") -> None:
        self._commands = commands
        self._where = (f"--remote-host={server}",) if server else ()

    async def pool(self) -> tuple[Peer, ...]:
        """Every member, this host among them."""
        return parsing.peers_of(await self._look("pool", "list", verb="ask for the peers of the pool"))

    async def volumes(self) -> tuple[VolumeInfo, ...]:
        return parsing.volumes_of(await self._look("volume", "info", "all", verb="ask for the volumes"))

    async def volume(self, name: str) -> VolumeInfo | None:
        try:
            found = parsing.volumes_of(await self._look("volume", "info", name, verb=f"look at the volume {name}"))
        except GlusterError as error:
            if _NOT_THERE in error.words:
                return None
            raise
        return next(iter(found), None)

    async def online(self, volumes: Iterable[VolumeInfo]) -> dict[str, dict[str, str]]:
        """Started volume → its bricks that run → their processes. While another change of a volume is under way gluster
        leaves it out of the answer, and calls that a success: so it is asked for by its name, and waited for.
        """
        found = await self._online("all")
        for volume in volumes:
            if volume.started and volume.name not in found:
                found |= {volume.name: await self.running(volume.name)}
        return found

    async def running(self, name: str) -> dict[str, str]:
        """The bricks of a volume that run → their processes."""
        try:
            return (await self._online(name)).get(name, {})
        except GlusterError as error:
            if _NOT_THERE in error.words or _NOT_STARTED in error.words:
                return {}
            raise

    async def _online(self, what: str) -> dict[str, dict[str, str]]:
        return parsing.online_bricks(await self._look("volume", "status", what, verb="ask for the bricks"))

    async def heal_counts(self, volume: VolumeInfo) -> tuple[HealCount, ...]:
        """One for each of its bricks, in their order."""
        verb = f"ask what of {volume.name} is to be healed"
        if not volume.bricks:
            raise HostError(f"cannot {verb}: gluster has named no bricks of it")
        found = await self._look("volume", "heal", volume.name, "info", "summary", verb=verb, s=HEAL_S)
        return parsing.heal_counts(found, volume.bricks)

    async def heal(self, name: str, *, full: bool = False) -> None:
        """Now, and not when the daemon that heals looks next, which may be ten minutes later. The answer is no XML.
        With `full` also what nobody has marked.
        """
        argv = ("gluster", "--mode=script", "volume", "heal", name, *(("full",) if full else ()))
        await self._commands.run(Command(argv, verb=f"have {name} healed", timeout_s=LOOK_S))

    async def split_files(self, name: str) -> tuple[str, ...]:
        verb = f"ask for the split files of {name}"
        return parsing.split_files(await self._look("volume", "heal", name, "info", "split-brain", verb=verb, s=HEAL_S))

    async def users(self, name: str) -> dict[str, int]:
        """Who uses a volume that is started: what kind, and how many of them. The answer is no XML."""
        verb = f"ask who uses {name}"

        async def ask(left_s: float) -> tuple[str, str | None]:
            argv = ("gluster", "--mode=script", "volume", "status", name, "client-list")
            command = Command(argv, verb=verb, timeout_s=left_s, changes=False, accept=(0, 1))
            result = await self._commands.run(command)
            refused = (result.stderr + result.stdout).decode(errors="replace")
            return result.text, refused if result.exit_code else None

        found = parsing.clients_of(await _patiently(verb, LOOK_S, ask), verb)
        return {kind: found[kind] for kind in _USERS if kind in found}

    async def quota(self, name: str) -> tuple[QuotaLimit, ...]:
        verb = f"ask for the limit of {name}"
        return parsing.quota_limits(await self._look("volume", "quota", name, "list", "/", verb=verb))

    async def probe(self, address: str) -> None:
        await self._change("peer", "probe", address, verb=f"take {address} into the pool")

    async def detach(self, name: str, *, force: bool = False) -> None:
        await self._change("peer", "detach", name, *_force(force), verb=f"take {name} out of the pool")

    async def create(self, name: str, layout: Sequence[str], bricks: Sequence[str]) -> None:
        """`layout` as gluster takes it: replica 3, or disperse-data 4 redundancy 2."""
        verb = f"make the volume {name}"
        await self._change("volume", "create", name, *layout, *bricks, verb=verb)

    async def set_options(self, name: str, options: Mapping[str, str]) -> None:
        pairs = [word for pair in options.items() for word in pair]
        await self._change("volume", "set", name, *pairs, verb=f"set the options of {name}")

    async def start(self, name: str, *, force: bool = False) -> None:
        """With `force` the bricks of a started volume that do not run are started."""
        await self._change("volume", "start", name, *_force(force), verb=f"start the volume {name}")

    async def stop(self, name: str) -> None:
        await self._change("volume", "stop", name, verb=f"stop the volume {name}")

    async def delete(self, name: str) -> None:
        await self._change("volume", "delete", name, verb=f"delete the volume {name}")

    async def enable_quota(self, name: str) -> None:
        await self._change("volume", "quota", name, "enable", verb=f"enable the limit of {name}")

    async def limit(self, name: str, size: int) -> None:
        await self._change("volume", "quota", name, "limit-usage", "/", str(size), verb=f"limit the size of {name}")

    async def replace_brick(self, name: str, old: str, new: str) -> None:
        verb = f"replace the brick {old} of {name} by {new}"
        await self._change("volume", "replace-brick", name, old, new, "commit", "force", verb=verb)

    async def exchange_brick(self, volume: VolumeInfo, old: str, new: str) -> None:
        """Of a volume that is kept in one copy, and that nobody wants any more: gluster replaces no brick of such."""
        verb = f"exchange the brick {old} of {volume.name} for {new}"
        if all(brick.name != new for brick in volume.bricks):
            await self._change("volume", "add-brick", volume.name, new, "force", verb=verb)
        await self._change("volume", "remove-brick", volume.name, old, "force", verb=verb)

    async def _look(self, *words: str, verb: str, s: float = LOOK_S) -> parsing.Answer:
        return await self._ask(words, verb, timeout_s=s, changes=False)

    async def _change(self, *words: str, verb: str) -> parsing.Answer:
        return await self._ask(words, verb, timeout_s=CHANGE_S, changes=True)

    async def _ask(self, words: Sequence[str], verb: str, *, timeout_s: float, changes: bool) -> parsing.Answer:
        async def ask(left_s: float) -> tuple[parsing.Answer, str | None]:
            argv = ("gluster", *self._where, "--mode=script", "--xml", *words)
            command = Command(argv, verb=verb, timeout_s=left_s, changes=changes, output_limit=_ANSWER_BYTES)
            result = await self._commands.run(command)
            if result.truncated:
                raise HostError(f"cannot {verb}: the answer of gluster is cut off after {_ANSWER_BYTES >> 20} MiB")
            answer = parsing.read_answer(result.stdout, verb)
            return answer, answer.error if answer.failed else None

        return await _patiently(verb, timeout_s, ask)


async def _patiently(verb: str, timeout_s: float, ask: Callable[[float], Awaitable[tuple[T, str | None]]]) -> T:
    """`ask` is told how long it may take, and says beside its answer why gluster refused, if it did."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    failures = 0
    while True:
        answer, refused = await ask(max(1.0, ends - loop.time()))
        if refused is None:
            return answer
        pause_s = _PATIENCE.delay_s(failures)
        if not any(one in refused for one in _BUSY) or loop.time() + pause_s >= ends:
            raise GlusterError(f"cannot {verb}: {refused.strip() or 'gluster does not say why'}", refused)
        failures += 1
        await asyncio.sleep(pause_s)


def _force(wanted: bool) -> tuple[str, ...]:
    return ("force",) if wanted else ()
