"""What a killed connector leaves behind before its program was even executed."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors.errors import LeftoverError
from quartermaster.connectors.leftovers import VARIABLE, mark, wait_for_leftovers
from quartermaster.host.locks import lock_name
from tests.connectors.harness.running import connector_in, killed_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import KILL_AFTER, World
from tests.host.unexecuted import Unexecuted

pytestmark = pytest.mark.slow  # every command is a process

LATER_S = 0.3  # that recover has begun to look


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**COMMON)
    made.path("disk.img").write_bytes(b"\0" * 4096)
    return made


def local(world: World) -> dict[str, Any]:
    return {"driverVolumeType": "LOCAL", "data": {"devicePath": str(world.path("disk.img")), "volumeId": "local-1"}}


def losetup(world: World) -> tuple[list[str], dict[str, str]]:
    argv = [str(world.path("bin/losetup")), "--find", "--show", "--nooverlap", str(world.path("disk.img"))]
    return argv, {VARIABLE: mark(world.path("state"), ["local-1"], argv)}


def killed_when_it_was_recorded(world: World) -> None:
    world.plan(0, KILL_AFTER)
    assert killed_in(world, lambda: connector_in(world).connect(local(world)))
    world.unplan()


def test_recover_waits_for_a_program_that_was_not_executed_yet(world: World) -> None:
    before = world.snapshot()
    killed_when_it_was_recorded(world)

    async def recovered() -> list[str]:
        asyncio.get_running_loop().call_later(LATER_S, child.go)
        return [one.volume_id for one in await connector_in(world).recover()]

    with Unexecuted(*losetup(world)) as child:
        assert asyncio.run(recovered()) == ["local-1"]
        os.waitpid(child.pid, 0)
        assert world.snapshot() == before


def test_the_lock_that_such_a_program_still_has_is_not_that_of_a_live_process(world: World) -> None:
    before = world.snapshot()
    killed_when_it_was_recorded(world)
    fd = os.open(world.path(f"state/locks/{lock_name('volume local-1')}"), os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(fd, False)
    fcntl.flock(fd, fcntl.LOCK_EX)

    async def recovered() -> list[str]:
        asyncio.get_running_loop().call_later(LATER_S, child.go)
        return [one.volume_id for one in await connector_in(world).recover()]

    with Unexecuted(*losetup(world)) as child:
        os.close(fd)
        assert asyncio.run(recovered()) == ["local-1"]
        os.waitpid(child.pid, 0)
        assert world.snapshot() == before


async def test_one_that_is_never_executed_is_named_when_the_time_is_up(world: World) -> None:
    with Unexecuted(*losetup(world)) as child, pytest.raises(LeftoverError, match=rf"process .*{child.pid}"):
        await wait_for_leftovers(world.path("state"), "local-1", timeout_s=0.2, what="it")
