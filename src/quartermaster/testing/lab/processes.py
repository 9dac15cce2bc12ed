"""Processes of virtual hosts: finding the first one of each, starting others beside it, and ending them all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from quartermaster.host import procfs
from quartermaster.host.commands import Command, Commands
from quartermaster.support.deadlines import within
from quartermaster.testing.lab import init
from quartermaster.testing.lab.state import LabError, Owner

HUB = "hub"
_INIT = str(Path(init.__file__).resolve())
_START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 20.0
_ENTERED_S = 1.0
_LOOK_S = 0.005


class Keeper(msgspec.Struct, frozen=True):
    """The first process of a host, or the one that keeps the switch."""

    name: str
    pid: int
    started: int
    ready: bool

    @property
    def lives(self) -> bool:
        found = procfs.process_stat(self.pid)
        return found is not None and found.lives and found.started == self.started


def find_keepers(lab: str) -> list[Keeper]:
    """All of a lab, those that are only being started included."""
    found = []
    for process in procfs.processes():
        arguments = procfs.arguments(process.pid) if process.lives else ()
        # By its last words and not by its path: another installation of this program may have started it.
        program, kind, of_lab, name, *_ = arguments[-6:] if len(arguments) >= 6 else [""] * 4
        if of_lab == lab and program.endswith("/init.py"):
            ready = _short_name(process.pid) == init.READY_NAME
            found.append(Keeper(HUB if kind == HUB else f"host {name}", process.pid, process.started, ready))
    return found


async def start_keeper(
    commands: Commands, lab: str, name: str, *, plan: Path | None, owner: Owner, verb: str
) -> Keeper:
    """Returns when it is ready. The one that it replaces must have ended."""
    kind = "host" if plan is not None else HUB
    words = (kind, lab, name, str(plan or "-"), str(owner.pid))
    argv = (sys.executable, "-I", "-S", _INIT, *words)
    result = await commands.run(Command(argv, verb=verb, timeout_s=_START_TIMEOUT_S))
    pid = int(result.text)
    stat = procfs.process_stat(pid)
    if stat is None:
        raise LabError(f"cannot {verb}: it ended at once")
    return Keeper(f"host {name}" if plan is not None else HUB, pid, stat.started, ready=True)


def entering(pid: int, *, only_network: bool = False) -> tuple[str, ...]:
    """The prefix that runs a command on a host. With its PID namespace: what ends the host ends the command."""
    every = () if only_network else ("--mount", "--uts", "--ipc", "--pid")
    return ("nsenter", f"--target={pid}", "--net", *every, "--")


class LabProcess:
    """A process on a virtual host. It is ended with the host at the latest."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                cwd="/",
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the command itself, in the machine's own counting; 0 when it has ended."""
        if not self.running:
            return 0
        # nsenter waits beside its child, for nobody can move into a PID namespace himself.
        children = (found.pid for found in procfs.processes() if found.parent == self._popen.pid)
        return next(children, 0)

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    async def wait(self, timeout_s: float) -> int:
        """Its exit code. LabError when it runs on."""
        if not await _ended_within(self._popen.pid, timeout_s):
            raise LabError(f"cannot wait for {self._popen.args!r}: it runs on after {timeout_s:g} s")
        return self._popen.wait()

    async def signal(self, number: signal.Signals) -> None:
        """Nothing happens when it has ended."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _START_TIMEOUT_S
        while self.running and loop.time() < ends:
            if pid := self.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                return
            await asyncio.sleep(_LOOK_S)

    async def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, and SIGKILL for one that does not end in time."""
        await self.signal(signal.SIGTERM)
        if not await _ended_within(self._popen.pid, timeout_s):
            await self.signal(signal.SIGKILL)
        return await self.wait(_END_TIMEOUT_S)


async def end_keepers(lab: str, names: Sequence[str] = ()) -> None:
    """SIGKILL to the hosts of these names, or to all of the lab; whoever is on them ends before this returns."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + _END_TIMEOUT_S
    while keepers := [keeper for keeper in find_keepers(lab) if not names or keeper.name in names]:
        entered = _entered(keepers)
        for keeper in keepers:
            _kill(keeper.pid, keeper.started)
        # nsenter buries its child and goes; killed, it would leave that to a process that may take its time. Whoever
        # entered without the PID namespace stays.
        await _all_end(keepers, min(loop.time() + _ENTERED_S, ends))
        for pid, started in entered.items():
            _kill(pid, started)
        if stuck := await _all_end(keepers, ends):
            raise LabError(
                f"cannot end the {stuck.name} of the lab: process {stuck.pid} does not go",
                hint="a process on it waits in the kernel for a disk or server that does not answer",
            )


async def _all_end(keepers: Sequence[Keeper], ends: float) -> Keeper | None:
    """The first that has not ended when the time is up."""
    loop = asyncio.get_running_loop()
    for keeper in keepers:
        if keeper.lives and not await _ended_within(keeper.pid, ends - loop.time()):
            return keeper
    return None


def _entered(keepers: Sequence[Keeper]) -> dict[int, int]:
    """Processes in namespaces that were made for the keepers, with their start times."""
    theirs = set()
    for keeper in keepers:
        # One that is being started may still be in those of its starter, as the hub always is in all but the network.
        if keeper.ready:
            theirs |= {_namespace(keeper.pid, kind) for kind in (("net",) if keeper.name == HUB else ("net", "mnt"))}
    theirs -= {_namespace(os.getpid(), kind) for kind in ("net", "mnt")} | {""}
    return {
        process.pid: process.started
        for process in procfs.processes()
        if process.lives and theirs.intersection(_namespace(process.pid, kind) for kind in ("net", "mnt"))
    }


def _namespace(pid: int, kind: str) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def _short_name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _kill(pid: int, started: int) -> None:
    with _pidfd(pid) as fd:
        now = procfs.process_stat(pid)
        if fd >= 0 and now is not None and now.started == started:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        yield -1
        return
    try:
        yield fd
    finally:
        os.close(fd)


async def _ended_within(pid: int, timeout_s: float) -> bool:
    """A zombie has ended, too."""
    with _pidfd(pid) as fd:
        if fd < 0:
            return True
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(fd, ended.set)
        try:
            async with within(max(timeout_s, 0.001)):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(fd)
    return True
