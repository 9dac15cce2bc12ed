"""A multipath device that two volume ids lead to: one of them goes, and the other keeps it."""

from pathlib import Path

import pytest

from tests.connectors import cases_iscsi, tools_iscsi
from tests.connectors.cases_iscsi import SEVERAL, info
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

pytestmark = pytest.mark.slow  # every command is a process


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "world").make()
    made.install(**{**COMMON, **tools_iscsi.TOOLS})
    cases_iscsi.prepare(made)
    return made


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
async def test_a_map_with_a_path_of_another_volume_stays(world: World, force: bool) -> None:
    before = world.snapshot()
    connector = connector_in(world, multipath=True)
    await connector.connect(info(**SEVERAL))
    single = connector_in(world)
    other = info(volumeId="volume-2")
    found = await single.connect(other)
    assert found.device.endswith("/dm-0")
    world.forget()
    await connector.disconnect(info(**SEVERAL), force=force)
    assert await single.find("volume-2") == found
    assert not [argv for argv in world.commands() if argv[0] in ("dmsetup", "multipath")]
    assert not world.path("sys/class/block/sdc").exists()
    await single.disconnect(other)
    # The volume that made multipath know it is gone; the name alone makes no device.
    assert {name for name, _ in world.snapshot().items() ^ before.items()} <= {"etc/multipath/wwids"}
