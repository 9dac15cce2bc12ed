"""Calls about all volumes of a host keep one deadline: none waits for those before it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import connector as module
from quartermaster.connectors.attaching import Attaching
from quartermaster.connectors.connector import Connector
from quartermaster.support.errors import DeadlineError
from tests.connectors.harness.running import connector_in
from tests.connectors.harness.tools import COMMON
from tests.connectors.harness.world import World

TIMEOUT_S = 0.6


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connector:
    world = World(tmp_path / "world").make()
    world.install(**COMMON)
    for name in "abcd":
        text = f'"volumeId":"{name}","driver":"LOCAL","client":"kernel","place":{{}},"boot":"","state":"STATE"'
        world.path(f"state/attachments/{name}.json").write_text(f"{{{text}}}")
    # Fewer than there are volumes that hang: the last one has a turn nevertheless.
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    return connector_in(world)


def all_are(connector: Connector, state: str) -> None:
    for file in connector._machine.directory.glob("attachments/*.json"):
        file.write_text(file.read_text().replace("STATE", state))


async def hang(_self: Any, volume_id: str, *, timeout_s: float) -> bool:
    if volume_id != "d":
        await asyncio.sleep(timeout_s)
    if volume_id != "d" or timeout_s <= 0:
        raise DeadlineError("the time is up")
    return True


async def test_volumes_that_hang_leave_a_share_of_the_time_to_the_others(
    connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attaching, "recover", hang)
    all_are(connector, "connecting")
    begun = time.monotonic()
    done = await connector.recover(timeout_s=TIMEOUT_S)
    assert [(one.volume_id, bool(one.problem)) for one in done] == [("a", True), ("b", True), ("c", True), ("d", False)]
    assert time.monotonic() - begun < 2 * TIMEOUT_S


async def test_a_list_keeps_its_time_with_many_volumes_that_hang(
    connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attaching, "find", hang)
    all_are(connector, "connected")
    begun = time.monotonic()
    listed = (await connector.list(foreign=False, timeout_s=TIMEOUT_S)).attachments
    assert [(one.volume_id, one.present) for one in listed] == [("a", False), ("b", False), ("c", False), ("d", True)]
    assert time.monotonic() - begun < 2 * TIMEOUT_S
