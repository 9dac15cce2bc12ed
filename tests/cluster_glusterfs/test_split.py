"""Copies of a file contradict each other: the status names it, and says how somebody settles that."""

from __future__ import annotations

import re
from typing import Any

import pytest

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import PATIENCE_S, Site

from .gluster import CLUSTER, LONG_S, READ, status_of, until_whole, with_files

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(600)]

# Nobody is lost while all agents stand still.
CALM = CLUSTER.replace("moveDataAfterSeconds: 8", "moveDataAfterSeconds: 120")
AGENTS = "pkill --signal {signal} --full '^[^ ]*python[^ ]* -m quartermaster (agent|lead)' || [ $? -eq 1 ]"
BRICKS = "glusterfsd.*--volfile-id {volume}[.]"
# A brick is dead when nothing listens any more; then the client, which is told at once, has given it up as well.
KILL_BRICK = f"pkill --signal KILL --full '{BRICKS}' && while pgrep --full '{BRICKS}'; do sleep 0.1; done; sleep 1"
WRITE_IT = "(echo {content} > /mnt/data/split) 2>/dev/null && sync /mnt/data/split && echo written || true"
COUNT = "gluster --mode=script volume status {volume} detail | grep -c '^Online *: Y'"
COMMAND = re.compile(r"`(gluster volume heal \S+ split-brain source-brick) BRICK FILE`")


async def shell(host: VirtualHost, script: str) -> str:
    return (await host.run(["sh", "-c", script], timeout_s=PATIENCE_S, accept=(0, 1))).text.strip()


async def gluster(host: VirtualHost, *words: str) -> str:
    return (await host.run(["gluster", "--mode=script", *words], timeout_s=PATIENCE_S)).text


async def written_to_one(site: Site, volume: str, there: VirtualHost, content: str) -> None:
    for host in site.lab.hosts[:3]:
        if host is not there:
            await shell(host, KILL_BRICK.format(volume=volume))

    async def written() -> bool:
        """The client looks only now and then whether a brick is back."""
        return await shell(site.lab.hosts[1], WRITE_IT.format(content=content)) == "written"

    await site.until(f"{content} is written", written)
    await shell(there, KILL_BRICK.format(volume=volume))  # before the others run again: nobody may hear of it


async def all_bricks_run(site: Site, volume: str) -> None:
    await gluster(site.first, "volume", "start", volume, "force")

    async def three() -> bool:
        return await shell(site.first, COUNT.format(volume=volume)) == "3"

    await site.until("three bricks run", three)


async def split(site: Site, volume: str) -> None:
    """Each brick has what the two others were never told. Where two agree gluster takes their word by itself."""
    hosts = site.lab.hosts[:3]
    await shell(hosts[1], "echo before > /mnt/data/split && sync /mnt/data/split")
    for host in hosts:
        await shell(host, AGENTS.format(signal="STOP"))
    for option, value in (("cluster.quorum-type", "none"), ("cluster.self-heal-daemon", "off")):
        await gluster(site.first, "volume", "set", volume, option, value)
    for host, content in zip(hosts, ("first", "second", "third"), strict=True):
        await written_to_one(site, volume, host, content)
        await gluster(site.first, "volume", "start", volume, "force")
    await all_bricks_run(site, volume)
    for option in ("cluster.quorum-type", "cluster.self-heal-daemon"):
        await gluster(site.first, "volume", "reset", volume, option)
    for host in hosts:
        await shell(host, AGENTS.format(signal="CONT"))


async def degraded(site: Site) -> dict[str, Any]:
    conditions = (await status_of(site))["status"].get("conditions", ())
    found: dict[str, Any] = next((one for one in conditions if one["type"] == "Degraded"), {})
    return found


async def test_a_file_whose_copies_contradict_each_other_is_named_and_settled_as_the_status_says(site: Site) -> None:
    second = site.lab.hosts[1]
    await with_files(site)
    await site.apply(CALM)
    volume = (await site.show("pvc", "data"))["spec"]["volumeName"]
    await split(site, volume)

    async def told() -> bool:
        return (await degraded(site)).get("reason") == "SplitBrain"

    await site.until("the status tells of the split", told, timeout_s=LONG_S)
    message = (await degraded(site))["message"]
    assert "/split" in message
    assert "/file1" not in message
    assert (await status_of(site))["spec"]["status"] == "ONLINE"
    await second.run(["cat", "/mnt/data/split"], accept=(1,))  # gluster itself gives no copy of it

    command = COMMAND.search(message)
    assert command is not None, message
    info = await gluster(second, "volume", "info", volume)
    third = re.search(rf"^Brick\d+: ({re.escape(site.lab.hosts[2].address)}:\S+)$", info, re.MULTILINE)
    assert third is not None
    await gluster(second, *command[1].split()[1:], third[1], "/split")
    await until_whole(site, 3)
    assert (await second.run(["cat", "/mnt/data/split"])).text == "third\n"
    await second.run(["sh", "-c", READ])
