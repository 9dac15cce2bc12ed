"""iSCSI by a daemon: one for each LUN, however its portals are written, and one that goes whatever its target says."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quartermaster.connectors import IdentityMismatchError
from quartermaster.connectors.connector import Connector
from quartermaster.host import procfs
from tests.connectors.cases_userspace import IQN, PORTAL, TOOLS, daemons_in, prepare
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World
from tests.connectors.servers import wait_for

pytestmark = pytest.mark.slow  # every command is a process

PORTALS = [PORTAL, "192.0.2.21:3260"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **TOOLS})
    prepare(made)
    with daemons_in(made):
        yield made


def connector_of(world: World, *, boot: str = "") -> Connector:
    made = connector_in(world, clients={"ISCSI": "userspace"})
    machine = msgspec.structs.replace(made._machine, boot=boot or made._machine.boot)
    return Connector(machine, made._settings)


def info(*, portals: list[str] = PORTALS, **data: Any) -> dict[str, Any]:
    given = {"targetPortals": portals, "targetIqn": IQN, "targetLun": 3, "volumeId": "v"}
    return {"driverVolumeType": "ISCSI", "data": {**given, **data}}


TURNED = info(portals=PORTALS[::-1])


def daemons(world: World) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(world.path("bin/qemu-storage-daemon")) in arguments:
            found.append(int(process.name))
    return found


def kill_the_daemon(world: World) -> None:
    (pid,) = daemons(world)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: (found := procfs.process_stat(pid)) is None or not found.lives)


@pytest.mark.parametrize("boot", ["", "another"], ids=["same boot", "another boot"])
async def test_after_its_daemon_died_a_volume_is_made_anew_with_its_portals_in_another_order(
    world: World, boot: str
) -> None:
    before = world.snapshot()
    await connector_of(world).connect(info())
    kill_the_daemon(world)
    connector = connector_of(world, boot=boot)
    attachment = await connector.connect(TURNED)
    assert await connector.device_path("v") == attachment.path
    assert await connector.connect(info()) == attachment
    assert len(daemons(world)) == 1
    await connector.disconnect(TURNED)
    assert daemons(world) == []
    assert world.snapshot() == before


async def test_a_lun_has_one_daemon_in_whatever_order_two_volumes_name_its_portals(world: World) -> None:
    connector = connector_of(world)
    first = await connector.connect(info())
    second = await connector.connect(info(portals=PORTALS[::-1], volumeId="w"))
    assert second.device == first.device
    assert len(daemons(world)) == 1
    await connector.disconnect(info())
    assert await connector.device_path("w") == second.path


async def test_a_lun_that_was_given_away_is_not_opened_when_its_daemon_died(world: World) -> None:
    connector = connector_of(world)
    await connector.connect(info())
    kill_the_daemon(world)
    world.set_fact("target_says", "naa.600140500000000000000000000000ff")
    with pytest.raises(IdentityMismatchError, match="cannot use LUN 3"):
        await connector.connect(info())
    assert daemons(world) == []


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize("said", ["absent", "authentication", "answer", "busy", "unreachable"])
async def test_whatever_the_target_has_against_a_volume_it_can_go(world: World, said: str, force: bool) -> None:
    before = world.snapshot()
    connector = connector_of(world)
    attachment = await connector.connect(info())
    world.set_fact("target_says", said)
    assert await connector.find("v") == attachment
    assert await connector.disconnect(info(), force=force) == attachment.path
    assert daemons(world) == []
    assert {**world.snapshot(), "facts.json": ""} == {**before, "facts.json": ""}


@pytest.mark.parametrize("wwid", ["", "naa.60014050000000000000000000000003"])
async def test_a_lun_that_had_a_name_and_has_none_is_another_volume(world: World, wwid: str) -> None:
    connector = connector_of(world)
    await connector.connect(info(wwid=wwid))
    world.set_fact("target_says", "")
    with pytest.raises(IdentityMismatchError, match="it is a LUN that does not say what it is, and the volume is naa"):
        await connector.disconnect(info(wwid=wwid))
    world.forget()
    await connector.disconnect(info(wwid=wwid), force=True)
    assert daemons(world) == []
    assert "blockdev" not in [argv[0] for argv in world.commands()]
