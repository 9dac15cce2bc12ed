"""Random connects, disconnects, crashes and recoveries of volumes that share targets; after every step the kernel is
asked which sessions and disks it has, and they are compared with what the calls have said."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from quartermaster.connectors import Connector, open_connector
from quartermaster.connectors.context import Context
from quartermaster.connectors.drivers import iscsi
from quartermaster.connectors.drivers.iscsi_records import Target as Way
from quartermaster.connectors.drivers.iscsi_records import drop_record
from quartermaster.connectors.drivers.iscsi_sessions import find_session
from quartermaster.host.commands import Command
from tests.hostlab.dying import call_and_die
from tests.hostlab.lio import RECORDS, Disk, Target, node_records, sessions, start_iscsi
from tests.hostlab.programs import run

pytestmark = pytest.mark.slow

TARGETS, LUNS = ("left", "right"), (0, 1, 2)
ACTIONS = ("connect", "connect", "disconnect", "dying connect", "dying disconnect", "recover")
LIVING = ("connect", "connect", "disconnect")
SIZE = 4 << 20
LAST_STEP = 9  # commands and file changes that a connect or a disconnect makes, as a rule
Volume = tuple[str, int]


@pytest.fixture
def targets() -> Iterator[dict[str, Target]]:
    start_iscsi()
    made = {name: Target(name) for name in TARGETS}
    disks = []
    for name, target in made.items():
        for lun in LUNS:
            disks.append(Disk(f"{name}-{lun}", size=SIZE))
            target.serve(lun, disks[-1])
    yield made
    for target in made.values():
        target.remove()
    for disk in disks:
        disk.remove()


class Host:
    """What should be here: what is connected, and what may be here in parts since a process died."""

    def __init__(self, targets: dict[str, Target], directory: Path) -> None:
        self._targets = targets
        self._directory = directory
        self.connected: set[Volume] = set()
        self.unfinished: set[Volume] = set()
        self.died = 0

    def connector(self) -> Connector:
        return open_connector(directory=self._directory, timeout_s=60)

    def info(self, volume: Volume) -> dict[str, Any]:
        name, lun = volume
        return self._targets[name].info(lun, identity(volume))

    def perform(self, action: str, volume: Volume, *, step: int, after_s: float) -> None:
        info = self.info(volume)
        if action == "recover":
            assert [one for one in asyncio.run(self.connector().recover()) if one.problem] == []
            self.unfinished.clear()
        elif action.startswith("dying"):
            work = self.disconnect if action == "dying disconnect" else self.connect
            self.unfinished.add(volume)
            self.died += call_and_die(lambda: work(info), step=step, after_s=after_s)
            self.learn(volume)
        elif action == "connect":
            asyncio.run(self.connect(info))
            self.connected.add(volume)
            self.unfinished.discard(volume)
        else:
            asyncio.run(self.disconnect(info))
            self.connected.discard(volume)
            self.unfinished.discard(volume)

    async def connect(self, info: dict[str, Any]) -> None:
        connector = self.connector()
        found = await connector.connect(info)
        assert await connector.device_path(found.volume_id) == found.path

    async def disconnect(self, info: dict[str, Any]) -> None:
        await self.connector().disconnect(info)

    def learn(self, volume: Volume) -> None:
        """The record says how far a process came that died."""
        listed = asyncio.run(self.connector().list(foreign=False)).attachments
        states = {one.volume_id: one.state for one in listed}
        state = states.get(identity(volume))
        self.connected.discard(volume)
        self.unfinished.discard(volume)
        if state == "connected":
            self.connected.add(volume)
        elif state is not None:
            self.unfinished.add(volume)

    def check(self) -> None:
        here = {(self._name(iqn), lun) for iqn, luns in sessions().items() for lun in luns}
        count = sum(len(luns) for luns in sessions().values())
        assert count == len(here), "a target has two sessions"
        assert self.connected <= here
        assert here <= self.connected | self.unfinished
        users = {name for name, _ in self.connected | self.unfinished}
        assert {self._name(iqn) for iqn in sessions()} <= users
        if not self.unfinished:
            wanted = {self._targets[name].iqn for name, _ in self.connected}
            assert {*sessions()} == wanted
            assert {record.partition("/")[0] for record in node_records()} == wanted

    def _name(self, iqn: str) -> str:
        return next(name for name, target in self._targets.items() if target.iqn == iqn)


def identity(volume: Volume) -> str:
    return f"{volume[0]}-{volume[1]}"


def take_steps(host: Host, count: int, seed: int, *, actions: Sequence[str] = ACTIONS) -> None:
    chance = random.Random(seed)
    volumes = [(name, lun) for name in TARGETS for lun in LUNS]
    for number in range(count):
        action = chance.choice(actions)
        here = sorted(host.connected | host.unfinished)
        # Mostly what changes something: the rest is what comes twice.
        likely = here if action.endswith("disconnect") else [one for one in volumes if one not in here]
        volume = chance.choice(likely if likely and chance.random() < 0.8 else volumes)
        step, after_s = chance.randint(1, LAST_STEP), chance.choice((0.0, 0.01, 0.1))
        print(f"step {number}: {action} {identity(volume)} (dies at {step} + {after_s} s)", flush=True)
        host.perform(action, volume, step=step, after_s=after_s)
        host.check()
    host.perform("recover", volumes[0], step=0, after_s=0)
    host.check()
    for volume in sorted(host.connected):
        host.perform("disconnect", volume, step=0, after_s=0)
    host.check()
    assert (sessions(), node_records()) == ({}, [])


def test_the_kernel_has_what_the_calls_have_said(targets: dict[str, Target], tmp_path: Path) -> None:
    take_steps(Host(targets, tmp_path / "state"), 8, seed=1)


@pytest.mark.timeout(3000)
@pytest.mark.deep
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_the_kernel_has_what_the_calls_have_said_200_times(
    targets: dict[str, Target], tmp_path: Path, seed: int
) -> None:
    host = Host(targets, tmp_path / "state")
    take_steps(host, 50, seed=seed)
    assert host.died >= 3


async def log_out_at_once(context: Context, way: Way) -> None:
    """As a library would that does not count who uses a session."""
    async with context.leaving(way.thing):
        session = find_session(context, way)
        if session is not None:
            argv = ("iscsiadm", "-m", "session", "-r", str(session.number), "--logout")
            await context.commands.run(Command(argv, verb="log out", accept=(0, 21)))
        await drop_record(context, way)


async def never_log_out(context: Context, way: Way) -> None:
    """As one that forgets its sessions."""
    async with context.leaving(way.thing):
        pass


@pytest.mark.timeout(900)
@pytest.mark.deep
@pytest.mark.parametrize("broken", [log_out_at_once, never_log_out])
def test_a_library_that_counts_wrongly_is_found_out(targets: dict[str, Target], tmp_path: Path, broken: object) -> None:
    try:
        with mock.patch.object(iscsi, "leave_session", broken), pytest.raises(AssertionError):
            take_steps(Host(targets, tmp_path / "state"), 4, seed=36, actions=LIVING)
    finally:
        run("iscsiadm", "-m", "session", "--logout", check=False)
        shutil.rmtree(RECORDS, ignore_errors=True)
