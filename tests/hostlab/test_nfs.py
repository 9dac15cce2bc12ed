"""NFS between the kernel's client and the kernel's server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import Connector, UnreachableError, open_connector
from quartermaster.support.errors import QuartermasterError
from tests.hostlab.nfs import EXPORTED, SERVER, NfsServer, nfs_mounts

pytestmark = pytest.mark.slow

LADDER = [("4.1", "4.0"), pytest.param(("4.0",), marks=pytest.mark.deep)]


@pytest.fixture
def server() -> Iterator[NfsServer]:
    found = NfsServer()
    yield found
    found.stop()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", timeout_s=90) as found:
        yield found
        assert nfs_mounts() == {}
        assert [path for path in (tmp_path / "state/attachments").glob("*") if path.is_file()] == []


def volume(export: str, name: str = "", **more: Any) -> dict[str, Any]:
    data = {"export": f"{SERVER}:/{export}", "name": name, "volumeId": f"{export}-{name}"}
    return {"driverVolumeType": "nfs", "data": data | more}


async def test_volumes_of_one_export_share_its_mount_until_the_last_goes(
    connector: Connector, server: NfsServer
) -> None:
    server.start()
    for name in ("a.img", "b.img"):
        (EXPORTED / "one" / name).write_text("")
    first, second = volume("one", "a.img"), volume("one", "b.img")
    path = (await connector.connect(first)).path
    await connector.connect(second)
    assert nfs_mounts() == {f"{SERVER}:/one": "4.2"}
    Path(path).write_text("kept")
    await connector.disconnect(first)
    assert nfs_mounts() == {f"{SERVER}:/one": "4.2"}
    await connector.disconnect(second)
    assert nfs_mounts() == {}
    assert (EXPORTED / "one/a.img").read_text() == "kept"


@pytest.mark.parametrize("versions", LADDER, ids=lambda versions: versions[0])
async def test_an_older_server_is_spoken_to_in_its_newest_version(
    connector: Connector, server: NfsServer, versions: tuple[str, ...]
) -> None:
    server.start(versions)
    await connector.connect(volume("one"))
    assert nfs_mounts() == {f"{SERVER}:/one": versions[0]}
    await connector.disconnect(volume("one"))


@pytest.mark.deep
async def test_an_export_that_is_not_there_leaves_nothing(connector: Connector, server: NfsServer) -> None:
    server.start()
    with pytest.raises(QuartermasterError, match="/three"):
        await connector.connect(volume("three"))
    assert nfs_mounts() == {}


async def test_writers_go_on_after_the_server_was_restarted(connector: Connector, server: NfsServer) -> None:
    server.start()
    attachment = await connector.connect(volume("one"))
    writer = await asyncio.create_subprocess_exec(
        "dd", "if=/dev/zero", f"of={attachment.path}/large", "bs=64k", "count=400", "oflag=sync", stderr=-3
    )
    large = EXPORTED / "one/large"
    while not large.exists() or large.stat().st_size == 0:
        await asyncio.sleep(0.02)
    server.stop()
    before = large.stat().st_size
    assert before < 400 << 16
    assert (await connector.list(foreign=False)).attachments[0].present
    server.start_again()
    assert await asyncio.wait_for(writer.wait(), 120) == 0
    assert large.stat().st_size == 400 << 16
    await connector.disconnect(volume("one"))


@pytest.mark.deep
async def test_a_dead_server_does_not_hold_a_forced_disconnect(connector: Connector, server: NfsServer) -> None:
    server.start()
    await connector.connect(volume("one"))
    server.stop()
    await connector.disconnect(volume("one"), force=True)
    assert nfs_mounts() == {}
    server.start_again()


@pytest.mark.deep
async def test_a_look_at_a_volume_of_a_dead_server_says_so_within_its_time(
    connector: Connector, server: NfsServer
) -> None:
    server.start()
    attachment = await connector.connect(volume("one"))
    server.stop()
    with pytest.raises(UnreachableError, match=f"it is here as {attachment.path}, but .* does not answer"):
        await connector.device_path("one-", timeout_s=10)
    server.start_again()
    await connector.disconnect(volume("one"))
