"""Where the walks are walked: the model, in virtual time, and real glusterds on virtual hosts."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

from quartermaster.backends.glusterfs import parsing
from quartermaster.backends.glusterfs.daemon import DAEMON, settings_text
from quartermaster.backends.glusterfs.model import Peer, VolumeInfo
from quartermaster.backends.glusterfs.parsing import Answer
from quartermaster.host.commands import Result
from quartermaster.host.daemons.base import Daemon
from quartermaster.host.devices.model import Signature
from quartermaster.host.fake import FakeMachine, FakeProcess
from quartermaster.host.mountinfo import Mount
from quartermaster.support.errors import HostError
from quartermaster.testing.lab import Lab
from quartermaster.testing.simulation import simulation_loop

from .commands import begin
from .lineage import FILES
from .model import TICK_S, GlusterModel
from .records import VolumeRecord
from .verbs import Verbs, Watcher
from .walks import VOLUME, State

Ask = Callable[[int, Sequence[str]], Awaitable[Result]]
Kept = Callable[[int, str], Awaitable[tuple[int, ...]]]
BRICKS = "/var/lib/bricks"
REST_S = 90.0
HOLDS_S = 3.0  # longer than gluster takes to begin with what a step leads to
HEAL_AGAIN_S = 10.0
ANY_CODE = tuple(range(256))  # gluster says in its answer what is wrong
UNREADABLE = "cannot be read"
# Which brick of a one-copy volume has a file follows from its name: with these, each of three has one, in their order.
FILE_NAMES = ("file5", "file3", "file0")


class _Names:
    """Addresses of hosts, by their number; gluster may call them by their names."""

    def __init__(self, addresses: Sequence[str], names: Sequence[str] = ()) -> None:
        self._addresses = list(addresses)
        self._names = list(names)

    def address(self, host: int) -> str:
        return self._addresses[host]

    def real(self, text: str) -> str:
        return re.sub(r"@(\d)", lambda match: self._addresses[int(match[1])], text)

    def short(self, text: str) -> str:
        for known in (self._addresses, self._names):
            for number, name in enumerate(known):
                text = re.sub(rf"\b{re.escape(name)}\b", f"@{number}", text)
        return text


async def look(ask: Ask, kept: Kept, names: _Names, host: int) -> State:
    """Through the same parsing that agents use; `kept` are the files that a host has in a directory."""
    peers = parsing.peers_of(await _answer(ask, host, "pool", "list"))
    volumes = parsing.volumes_of(await _answer(ask, host, "volume", "info", "all"))
    ours = [volume for volume in volumes if volume.name == VOLUME]
    files: dict[str, tuple[int, ...]] = {}
    for brick in [names.short(brick.name) for volume in ours for brick in volume.bricks]:
        place, _, path = brick.partition(":")
        files[brick] = await kept(int(place.removeprefix("@")), path)
    heal: dict[str, str] = {}
    for volume in [volume for volume in ours if volume.started]:
        heal = {names.short(name): found for name, found in (await _healing(ask, host, volume)).items()}
    status = await _answer(ask, host, "volume", "status", "all")
    running = parsing.online_bricks(status).get(VOLUME, {})
    return State(
        peers={_name(peer, names, host): peer.serves for peer in sorted(peers, key=lambda one: one.name)},
        volumes={
            volume.name: (str(volume.started), tuple(names.short(brick.name) for brick in volume.bricks))
            for volume in volumes
        },
        heal=heal,
        running=tuple(sorted(map(names.short, running))),
        leaving={
            names.short(task.findtext("params/brick", "")): task.findtext("statusStr", "") for task in _tasks(status)
        },
        files=files,
    )


async def _healing(ask: Ask, host: int, volume: VolumeInfo) -> dict[str, str]:
    answer = await _answer(ask, host, "volume", "heal", VOLUME, "info", "summary")
    if answer.failed:
        return {"": answer.error}
    known = {True: "pending", False: "whole"}
    counts = parsing.heal_counts(answer, volume.bricks)
    return {one.brick: known[one.pending > 0] if one.connected else "away" for one in counts}


def _tasks(status: Answer) -> Iterator[ElementTree.Element]:
    """Bricks that are being emptied."""
    return status.root.iterfind("volStatus/volumes/volume/tasks/task")


def _name(peer: Peer, names: _Names, host: int) -> str:
    return f"@{host}" if peer.local else names.short(peer.name)


async def _answer(ask: Ask, host: int, *words: str) -> Answer:
    return parsing.read_answer((await ask(host, words)).stdout, f"ask {' '.join(words)}")


def refusal(result: Result, names: _Names) -> str:
    try:
        answer = parsing.read_answer(result.stdout, "read what gluster says")
    except HostError:
        return "no answer"
    return names.short(answer.error) if answer.failed else ""


class ModelGround:
    def __init__(self, directory: Path, hosts: int) -> None:
        self.model = GlusterModel()
        self._names = _Names([f"10.0.0.{number}" for number in range(1, hosts + 1)])
        self._verbs = Verbs(self.model, Watcher())
        self._directory = directory
        self._hosts = hosts
        self._pid = 0

    async def open(self) -> None:
        for host in range(self._hosts):
            machine = self.model.machines[self._names.address(host)] = FakeMachine()
            machine.add_disk("vdb")
            self._mount(machine, 0)
            self._start(host)
        self._world = simulation_loop().start_process("world", self._turn())
        await asyncio.sleep(REST_S)

    def close(self) -> None:
        self._world.kill()

    async def gluster(self, host: int, words: Sequence[str]) -> str:
        return refusal(await self._ask(host, [self._names.real(word) for word in words]), self._names)

    async def kill(self, host: int) -> None:
        self._machine(host).reboot()
        self.model.kill_bricks(self._names.address(host))

    async def boot(self, host: int) -> None:
        self._mount(self._machine(host), 0)
        self._start(host)

    async def kill_glusterd(self, host: int) -> None:
        self._machine(host).kill(DAEMON)
        await asyncio.sleep(1.0)
        self._start(host)

    async def cut(self, host: int) -> None:
        self.model.network.cut(self._names.address(host))

    async def join(self, host: int) -> None:
        self.model.network.heal(self._names.address(host))

    async def replace_disk(self, host: int) -> None:
        machine = self._machine(host)
        machine.pull_disk("/dev/vdb")
        machine.add_disk("vdb")
        self._mount(machine, 1)

    async def write(self, file: int) -> None:
        async with asyncio.timeout(REST_S):
            while not self.model.write(self._volume(), file):
                await asyncio.sleep(TICK_S)

    async def read(self, file: int) -> str:
        return "" if self.model.read(self._volume(), file) else UNREADABLE

    async def rest(self, host: int, expected: State | None) -> State:
        await asyncio.sleep(REST_S)
        return await look(self._ask, self._kept, self._names, host)

    def _volume(self) -> VolumeRecord:
        return next(one for one in self.model.volumes.values() if one.name == VOLUME)

    async def _kept(self, host: int, path: str) -> tuple[int, ...]:
        """An arbiter knows the names, and nothing of what is in the files."""
        volume = self._volume()
        for position, brick in enumerate(volume.bricks):
            if (brick.address, brick.path) == (self._names.address(host), path):
                copy = self.model.copy_of(brick) if volume.shape.keeps_content(position) else None
                return tuple(n for n in range(FILES) if copy is not None and copy.versions.get(f"file{n}"))
        return ()

    async def _ask(self, host: int, words: Sequence[str]) -> Result:
        async with asyncio.timeout(REST_S):
            return await begin(self._verbs, self._names.address(host), ("gluster", "--xml", *words))

    async def _turn(self) -> None:
        while True:
            self.model.tick()
            await asyncio.sleep(TICK_S)

    def _machine(self, host: int) -> FakeMachine:
        return self.model.machines[self._names.address(host)]

    def _mount(self, machine: FakeMachine, disk: int) -> None:
        machine.write("/dev/vdb", Signature("xfs", "filesystem", f"uuid-{disk}", "bricks"))
        number = machine.disks["/dev/vdb"].number
        target = f"{BRICKS}/{disk}"
        machine.mounts.append(Mount(2 + disk, 1, number, "/", target, ("rw",), (), "xfs", "/dev/vdb", ("rw",)))

    def _start(self, host: int) -> None:
        self._pid += 1
        settings = self._directory / str(host) / "glusterd.vol"
        daemon = Daemon(DAEMON, argv=("glusterd", "--volfile", str(settings)))
        self._machine(host).processes[DAEMON] = FakeProcess(daemon, self._pid)


class RealGround:
    """glusterd on the hosts of a lab; the volume is mounted on the second one when it is first written to."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._names = _Names([host.address for host in lab.hosts], [host.name for host in lab.hosts])
        self._mounted = False
        self._written: dict[int, str] = {}  # file → the sum of what was written last

    async def open(self) -> None:
        for host in range(len(self._lab.hosts)):
            await self._shell(host, f"mkfs.xfs -q /dev/vdb && mkdir -p {BRICKS}/0 /var/lib/gluster/glusterd")
            await self._begin(host)

    async def gluster(self, host: int, words: Sequence[str]) -> str:
        return refusal(await self._ask(host, [self._names.real(word) for word in words]), self._names)

    async def kill(self, host: int) -> None:
        await self._lab.hosts[host].kill()

    async def boot(self, host: int) -> None:
        await self._lab.hosts[host].boot()
        await self._begin(host)

    async def kill_glusterd(self, host: int) -> None:
        await self._shell(host, "kill -KILL $(cat /run/glusterd-own.pid)")
        await self._start(host)

    async def cut(self, host: int) -> None:
        await self._lab.hosts[host].cut()

    async def join(self, host: int) -> None:
        await self._lab.hosts[host].heal()

    async def replace_disk(self, host: int) -> None:
        await self._lab.hosts[host].replace_disk(0)
        await self._shell(host, f"mkfs.xfs -q /dev/vdb && mkdir -p {BRICKS}/1 && mount /dev/vdb {BRICKS}/1")

    async def write(self, file: int) -> None:
        if not self._mounted:
            server = self._names.address(1)
            await self._shell(1, f"mkdir -p /mnt/v && mount -t glusterfs {server}:/{VOLUME} /mnt/v")
            self._mounted = True
        content = random.randbytes(64 << 10)
        await self._lab.hosts[1].run(["tee", f"/mnt/v/{FILE_NAMES[file]}"], timeout_s=120, stdin=content)
        self._written[file] = sha256(content).hexdigest()

    async def read(self, file: int) -> str:
        """As it is on the bricks: when a file is opened the kernel forgets what it has of it."""
        script = f"timeout 60 sha256sum < /mnt/v/{FILE_NAMES[file]}"
        found = await self._lab.hosts[1].run(["sh", "-c", script], timeout_s=120, accept=ANY_CODE)
        if found.exit_code:
            return UNREADABLE
        return "" if found.text.split()[0] == self._written[file] else "is another one"

    async def rest(self, host: int, expected: State | None) -> State:
        """As expected for some time on end: at first it is as it was before the step, which may be the same."""
        loop = asyncio.get_running_loop()
        ends, heal_at, since = loop.time() + REST_S, loop.time() + HEAL_AGAIN_S, math.inf
        while True:
            found: State | None = None
            with suppress(HostError):
                found = await look(self._ask, self._kept, self._names, host)
            now = loop.time()
            since = min(since, now) if found is not None and found == expected else math.inf
            if found is not None and (now - since >= HOLDS_S or now > ends):
                return found
            if found is not None and "pending" in found.heal.values() and now > heal_at:
                # As a coordinator does: what gluster could not heal at once it tries again after ten minutes.
                heal_at = now + HEAL_AGAIN_S
                await self._ask(host, ("volume", "heal", VOLUME))
            await asyncio.sleep(1.0)

    async def _ask(self, host: int, words: Sequence[str]) -> Result:
        argv = ["gluster", "--mode=script", "--xml", *words]
        return await self._lab.hosts[host].run(argv, timeout_s=120, accept=ANY_CODE)

    async def _kept(self, host: int, path: str) -> tuple[int, ...]:
        if not self._lab.hosts[host].up:
            return ()
        argv = ["find", path, "-maxdepth", "1", "-type", "f", "-size", "+0", "-printf", "%f\n"]
        names = (await self._lab.hosts[host].run(argv, timeout_s=60, accept=ANY_CODE)).text.split()
        return tuple(sorted(FILE_NAMES.index(name) for name in names))

    async def _begin(self, host: int) -> None:
        await self._shell(host, f"mount /dev/vdb {BRICKS}/0")
        await self._start(host)

    async def _start(self, host: int) -> None:
        settings = settings_text(Path("/var/lib/gluster"), "")
        script = (
            "cat > /var/lib/gluster/glusterd.vol && glusterd --pid-file=/run/glusterd-own.pid "
            "--volfile /var/lib/gluster/glusterd.vol"
        )
        await self._lab.hosts[host].run(["sh", "-c", script], timeout_s=60, stdin=settings.encode())
        ends = asyncio.get_running_loop().time() + 60.0
        while (await self._ask(host, ("pool", "list"))).exit_code:
            assert asyncio.get_running_loop().time() < ends, "glusterd does not answer"
            await asyncio.sleep(0.3)

    async def _shell(self, host: int, script: str) -> None:
        await self._lab.hosts[host].run(["sh", "-c", script], timeout_s=120)
