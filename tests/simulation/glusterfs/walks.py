"""Command lines of gluster and mishaps, step by step, and what is so after each: on the model and on real daemons.

Hosts are `@0`, `@1` and so on. A step is compared when it has come to rest: who is in the pool and answers, which
volumes there are with which bricks, which of these run, what is in them, and which have something to be healed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

VOLUME = "v"
THREE_COPIES = ("replica", "3")
ARBITER = ("replica", "2", "arbiter", "1")
ERASURE_CODED = ("disperse-data", "2", "redundancy", "1")
ONE_COPY = ()


class State(msgspec.Struct, frozen=True):
    """As one host sees it."""

    peers: dict[str, bool]  # who is in the pool, and whether it is taken in and connected
    volumes: dict[str, tuple[str, tuple[str, ...]]]  # status and bricks
    heal: dict[str, str]  # brick → "whole", "pending" or "away"; of the started volume; "" → why nobody can say
    running: tuple[str, ...]  # bricks with a process, as far as that is known
    leaving: dict[str, str]  # brick whose content is moved elsewhere → how far that is
    files: dict[str, tuple[int, ...]]  # brick → files that it has content of; none where it cannot be read


class Outcome(msgspec.Struct, frozen=True):
    step: str
    refused: str  # the words of gluster, "" where it did what it was told
    state: State


class Ground(Protocol):
    """Hosts with a disk each, mounted at /var/lib/bricks/0, and glusterd on every one of them; `@1` has the volume."""

    async def gluster(self, host: int, words: Sequence[str]) -> str:
        """The words with which it refused; "" where it did not."""
        ...

    async def kill(self, host: int) -> None: ...

    async def boot(self, host: int) -> None: ...

    async def kill_glusterd(self, host: int) -> None:
        """And start it again: bricks run on meanwhile."""
        ...

    async def cut(self, host: int) -> None: ...

    async def join(self, host: int) -> None:
        """The cable is plugged in again."""
        ...

    async def replace_disk(self, host: int) -> None:
        """Its disk dies, and a blank one is mounted at /var/lib/bricks/1."""
        ...

    async def write(self, file: int) -> None: ...

    async def read(self, file: int) -> str:
        """What is wrong with it; "" where what was written last is read."""
        ...

    async def rest(self, host: int, expected: State | None) -> State:
        """What is so when nothing changes any more: or, where that is known, when it is as expected."""
        ...


class Walk:
    """Notes what comes of every step. `expected` is what another ground has shown before."""

    def __init__(self, ground: Ground, expected: Sequence[Outcome] = ()) -> None:
        self.ground = ground
        self.outcomes: list[Outcome] = []
        self.layout: tuple[str, ...] = THREE_COPIES
        self._expected = expected

    async def gluster(self, host: int, *words: str, seen_from: int | None = None) -> None:
        refused = await self.ground.gluster(host, words)
        await self._note(f"@{host}: gluster {' '.join(words)}", seen_from if seen_from is not None else host, refused)

    async def happens(self, what: str, happening: Awaitable[None], seen_from: int = 1) -> None:
        await happening
        await self._note(what, seen_from)

    async def read(self, file: int) -> None:
        await self._note(f"file {file} is read", 1, await self.ground.read(file))

    async def _note(self, step: str, host: int, refused: str = "") -> None:
        at = len(self.outcomes)
        expected = self._expected[at].state if at < len(self._expected) else None
        self.outcomes.append(Outcome(step, refused, await self.ground.rest(host, expected)))

    async def begin(self, hosts: int = 3) -> None:
        """A pool with a volume that was written to."""
        for other in range(1, hosts):
            await self.gluster(0, "peer", "probe", f"@{other}")
        bricks = [brick(host) for host in range(3)]
        await self.gluster(1, "volume", "create", VOLUME, *self.layout, *bricks)
        await self.gluster(1, "volume", "set", VOLUME, "network.ping-timeout", "5")
        await self.gluster(1, "volume", "start", VOLUME)
        await self.happens("a file is written", self.ground.write(0))


def brick(host: int, disk: int = 0, name: str = VOLUME) -> str:
    return f"@{host}:/var/lib/bricks/{disk}/{name}"


async def three_four_three(walk: Walk) -> None:
    await walk.begin()
    await walk.gluster(1, "peer", "probe", "@3")
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(0), brick(3), "commit", "force")
    await walk.gluster(1, "peer", "detach", "@0")
    await walk.happens("a file is written", walk.ground.write(1))
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), brick(3, name="other"), "commit", "force")
    await walk.gluster(1, "volume", "stop", VOLUME)
    await walk.gluster(1, "volume", "delete", VOLUME)
    await walk.gluster(1, "peer", "detach", "@3")


async def a_disk_is_lost(walk: Walk) -> None:
    await walk.begin()
    await walk.happens("a disk is replaced by a blank one", walk.ground.replace_disk(2))
    await walk.happens("a file is written", walk.ground.write(1))
    new = brick(2, disk=1)
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), new, "commit", "force")
    await walk.happens("a file is written", walk.ground.write(0))
    await walk.happens("another host is killed", walk.ground.kill(0))
    await walk.read(0)
    await walk.read(1)


async def a_host_is_killed_and_back(walk: Walk) -> None:
    await walk.begin()
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.happens("a file is written", walk.ground.write(0))
    await walk.gluster(1, "volume", "stop", "nothing")
    await walk.gluster(1, "volume", "set", VOLUME, "user.mark", "set while one was away")
    await walk.happens("it is started again", walk.ground.boot(2))
    await walk.happens("as it sees it", walk.ground.write(1), seen_from=2)
    await walk.happens("another host is killed", walk.ground.kill(0))
    await walk.read(0)
    await walk.read(1)


async def a_host_is_cut_off_and_back(walk: Walk) -> None:
    await walk.begin()
    await walk.happens("a host is cut off", walk.ground.cut(2))
    await walk.happens("a file is written", walk.ground.write(0))
    await walk.happens("it is back", walk.ground.join(2))


async def every_command_twice(walk: Walk) -> None:
    """Whoever was killed after a command gives it again."""
    await walk.begin()
    await walk.gluster(0, "peer", "probe", "@1")
    await walk.gluster(1, "volume", "create", VOLUME, "replica", "3", *(brick(host) for host in range(3)))
    await walk.gluster(1, "volume", "create", "w", "replica", "3", *(brick(host) for host in range(3)))
    await walk.gluster(1, "volume", "start", VOLUME)
    await walk.gluster(1, "volume", "start", VOLUME, "force")
    await walk.gluster(1, "volume", "quota", VOLUME, "enable")
    await walk.gluster(1, "volume", "quota", VOLUME, "enable")
    await walk.gluster(1, "peer", "probe", "@3")
    for _ in range(2):
        await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), brick(3), "commit", "force")
    for _ in range(2):
        await walk.gluster(1, "peer", "detach", "@2")
    await walk.gluster(1, "peer", "detach", "@3")
    await walk.gluster(1, "volume", "delete", VOLUME)
    for _ in range(2):
        await walk.gluster(1, "volume", "stop", VOLUME)
    for _ in range(2):
        await walk.gluster(1, "volume", "delete", VOLUME)
    await walk.gluster(1, "volume", "info", VOLUME)


async def daemons_die(walk: Walk) -> None:
    await walk.begin()
    for host in range(3):
        await walk.happens(f"the glusterd of @{host} is killed", walk.ground.kill_glusterd(host))
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.gluster(1, "volume", "stop", VOLUME)
    await walk.gluster(1, "volume", "delete", VOLUME)
    await walk.gluster(1, "volume", "start", VOLUME)
    await walk.happens("it is started again", walk.ground.boot(2))
    await walk.happens("a file is written", walk.ground.write(1), seen_from=2)


async def a_host_never_comes_back(walk: Walk) -> None:
    await walk.begin()
    await walk.gluster(1, "peer", "probe", "@3")
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), brick(3), "commit", "force")
    await walk.happens("another host is killed", walk.ground.kill(0))
    await walk.gluster(1, "peer", "detach", "@2")
    await walk.gluster(1, "peer", "detach", "@2", "force")
    await walk.happens("that one is started again", walk.ground.boot(0))
    await walk.happens("as it sees it", walk.ground.write(1), seen_from=0)
    await walk.gluster(1, "peer", "detach", "@2")
    await walk.happens("as the other one sees it", walk.ground.write(1), seen_from=0)


async def a_volume_goes_with_a_lost_host(walk: Walk) -> None:
    """Stopped, and then a host is gone for good: first its brick has to go, be it beside another copy."""
    await walk.begin()
    await walk.gluster(1, "volume", "stop", VOLUME)
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.gluster(1, "volume", "delete", VOLUME)
    await walk.gluster(1, "peer", "detach", "@2", "force")
    new = brick(0, name="beside")
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), new, "commit", "force")
    await walk.gluster(1, "volume", "start", VOLUME)
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), new, "commit", "force")
    await walk.gluster(1, "peer", "detach", "@2", "force")
    await walk.gluster(1, "volume", "stop", VOLUME)
    await walk.gluster(1, "volume", "delete", VOLUME)


async def one_copy_three_four_three(walk: Walk) -> None:
    """A brick leaves after what is in it was moved; each of the commands is given twice, and some too early."""
    await _begin_with_one_copy(walk)
    await walk.gluster(1, "peer", "probe", "@3")
    await walk.gluster(1, "volume", "replace-brick", VOLUME, brick(2), brick(3), "commit", "force")
    for _ in range(2):
        await walk.gluster(1, "volume", "add-brick", VOLUME, brick(3))
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "status")
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "commit")
    for _ in range(2):
        await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "start")
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(0), "status")
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "status")
    await walk.happens("a file that was moved is written", walk.ground.write(2))
    for _ in range(2):
        await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "commit")
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "status")
    await walk.gluster(1, "volume", "add-brick", VOLUME, brick(2))
    await walk.gluster(1, "peer", "detach", "@2")
    for file in range(3):
        await walk.read(file)


async def one_copy_and_a_host_away(walk: Walk) -> None:
    """What is on it cannot be read until it is back."""
    await _begin_with_one_copy(walk)
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.read(0)
    await walk.read(2)
    await walk.happens("it is started again", walk.ground.boot(2))
    await walk.read(2)
    await walk.happens("a host is cut off", walk.ground.cut(2))
    await walk.read(1)
    await walk.read(2)
    await walk.happens("it is back", walk.ground.join(2))
    await walk.read(2)


async def one_copy_goes_with_a_lost_host(walk: Walk) -> None:
    """Its brick is exchanged for another one, by force: what was in it is lost."""
    await _begin_with_one_copy(walk)
    await walk.happens("a host is killed", walk.ground.kill(2))
    await walk.gluster(1, "peer", "detach", "@2", "force")
    await walk.gluster(1, "volume", "add-brick", VOLUME, brick(0, name="beside"), "force")
    for _ in range(2):
        await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(2), "force")
    await walk.read(0)
    await walk.read(2)
    await walk.gluster(1, "volume", "stop", VOLUME)
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(0), "start")
    await walk.gluster(1, "volume", "remove-brick", VOLUME, brick(0), "force")
    await walk.gluster(1, "volume", "delete", VOLUME)
    await walk.gluster(1, "peer", "detach", "@2", "force")
    await walk.gluster(1, "volume", "delete", VOLUME)


async def _begin_with_one_copy(walk: Walk) -> None:
    walk.layout = ONE_COPY
    await walk.begin()
    for file in (1, 2):
        await walk.happens(f"file {file} is written", walk.ground.write(file))


Steps = Callable[[Walk], Awaitable[None]]


def laid_out(name: str, layout: tuple[str, ...], steps: Steps) -> Steps:
    """The same steps with a volume of another layout."""

    async def walked(walk: Walk) -> None:
        walk.layout = layout
        await steps(walk)

    walked.__name__ = f"{steps.__name__}_{name}"
    return walked


# What every layout has to outlive.
MISHAPS: tuple[Steps, ...] = (
    three_four_three,
    a_disk_is_lost,
    a_host_is_killed_and_back,
    a_host_is_cut_off_and_back,
)
WALKS: tuple[Steps, ...] = (
    *MISHAPS,
    every_command_twice,
    daemons_die,
    a_host_never_comes_back,
    a_volume_goes_with_a_lost_host,
    *(laid_out("erasure_coded", ERASURE_CODED, steps) for steps in MISHAPS),
    *(laid_out("with_an_arbiter", ARBITER, steps) for steps in MISHAPS),
    one_copy_three_four_three,
    one_copy_and_a_host_away,
    one_copy_goes_with_a_lost_host,
)
HOSTS = 4
