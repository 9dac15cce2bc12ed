"""Two ways to one volume: the kernel's multipath over two portals of the kernel's iSCSI target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from quartermaster.connectors import Connector, IdentityMismatchError, open_connector
from tests.hostlab.lio import (
    Disk,
    Target,
    discovery_records,
    guard_discovery,
    node_records,
    sessions,
    start_iscsi,
)
from tests.hostlab.programs import alive, load, log_of, read, run, start, wait_for

pytestmark = pytest.mark.slow

FIRST, SECOND = "192.0.2.1", "198.51.100.1"
PORTALS = (f"{FIRST}:3260", f"{SECOND}:3260")
CONFIGURATION = """defaults {
    user_friendly_names no
    polling_interval 2
    max_polling_interval 2
    no_path_retry queue
}
"""


@pytest.fixture(autouse=True)
def _multipath() -> None:
    start_iscsi()
    load("dm-multipath", "dm-service-time")
    for interface, address in (("wire0", FIRST), ("wire1", SECOND)):
        if not Path(f"/sys/class/net/{interface}").exists():
            run("ip", "link", "add", interface, "type", "dummy")
            run("ip", "link", "set", interface, "up")
            run("ip", "address", "add", f"{address}/24", "dev", interface)
    if not alive("multipathd"):
        Path("/etc/multipath.conf").write_text(CONFIGURATION)
        start("multipathd", "-d", "-v3")
        wait_for(lambda: "pid" in run("multipathd", "show", "daemon", check=False))


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk("shared")
    yield made
    made.remove()


@pytest.fixture
def target(disk: Disk) -> Iterator[Target]:
    made = Target("both", portals=PORTALS)
    made.serve(0, disk)
    yield made
    made.remove()


@pytest.fixture
async def connector(tmp_path: Path) -> AsyncIterator[Connector]:
    async with open_connector(directory=tmp_path / "state", multipath=True, timeout_s=90) as found:
        yield found
        print("\n".join(log_of("multipathd").read_text().splitlines()[-150:]))
        assert (maps(), sessions(), node_records()) == ([], {}, [])


def maps() -> list[str]:
    return [path.name for path in Path("/sys/class/block").glob("dm-*") if read(path / "dm/uuid").startswith("mpath-")]


def both(target: Target, volume: str) -> dict[str, object]:
    return target.info(0, volume, targetPortals=[*PORTALS], targetIqns=[target.iqn] * 2, targetLuns=[0, 0])


async def test_two_portals_make_one_device(connector: Connector, target: Target, disk: Disk) -> None:
    attachment = await connector.connect(both(target, "volume-1"))
    assert maps() == [Path(attachment.device).name]
    assert attachment.identity == disk.wwid
    assert sessions() == {target.iqn: [0, 0]}
    assert len(list(Path(f"/sys/class/block/{maps()[0]}/slaves").iterdir())) == 2
    assert await connector.connect(both(target, "volume-1")) == attachment
    await connector.disconnect(both(target, "volume-1"))
    assert (maps(), sessions()) == ([], {})


@pytest.mark.parametrize(
    "password", ["", pytest.param("a-secret-for-asking", marks=pytest.mark.deep)], ids=["open", "guarded"]
)
async def test_one_portal_tells_of_the_other(connector: Connector, target: Target, password: str) -> None:
    guard_discovery("asker" if password else "", password)
    info = target.info(0, "volume-1", discoveryAuthUsername="asker" if password else "", discoveryAuthPassword=password)
    attachment = await connector.connect(info)
    assert sessions() == {target.iqn: [0, 0]}
    assert len(list(Path(f"/sys/class/block/{Path(attachment.device).name}/slaves").iterdir())) == 2
    assert discovery_records() == []
    await connector.disconnect(info)
    guard_discovery("", "")


async def test_writers_do_not_notice_that_a_path_is_cut(connector: Connector, target: Target, disk: Disk) -> None:
    attachment = await connector.connect(both(target, "volume-1"))
    written = 24 << 20
    writer = await asyncio.create_subprocess_exec(
        "dd", "if=/dev/urandom", f"of={attachment.path}", "bs=64k", f"count={written >> 16}", "oflag=direct", stderr=-3
    )
    while not disk.file.stat().st_blocks:
        await asyncio.sleep(0.02)
    run("ip", "address", "del", f"{SECOND}/24", "dev", "wire1")
    try:
        assert await asyncio.wait_for(writer.wait(), 150) == 0
        run("blockdev", "--flushbufs", attachment.path)
        assert run("cmp", "-n", str(written), attachment.path, disk.file) == ""
    finally:
        run("ip", "address", "add", f"{SECOND}/24", "dev", "wire1")
    assert await connector.device_path("volume-1") == attachment.path
    await connector.disconnect(both(target, "volume-1"))


@pytest.mark.deep
async def test_a_portal_that_is_down_leaves_the_volume_with_a_path_less(connector: Connector, target: Target) -> None:
    info = both(target, "volume-1")
    info["data"]["targetPortals"] = [PORTALS[0], f"{SECOND}:3299"]  # type: ignore[index]
    attachment = await connector.connect(info)
    assert len(list(Path(f"/sys/class/block/{Path(attachment.device).name}/slaves").iterdir())) == 1
    await connector.disconnect(info)


@pytest.mark.deep
async def test_two_volumes_are_never_made_one_device(connector: Connector, target: Target) -> None:
    other = Disk("other")
    second = Target("second", portals=(f"{SECOND}:3261",))
    second.serve(0, other)
    info = target.info(
        0,
        "volume-1",
        targetPortals=[PORTALS[0], second.portals[0]],
        targetIqns=[target.iqn, second.iqn],
        targetLuns=[0, 0],
    )
    with pytest.raises(IdentityMismatchError):
        await connector.connect(info)
    assert (maps(), sessions()) == ([], {})
    second.remove()
    other.remove()
