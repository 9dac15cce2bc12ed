"""What a host must have, and the sentence for what it lacks."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.host import Facts, HostCommands, Tool
from quartermaster.host.preflight import Check, Probe, State, judge_host, probe_host

FACTS = Facts(
    name="h1",
    addresses=("10.0.0.1",),
    boot="b",
    kernel="6.1.0-13-amd64",
    architecture="x86_64",
    distribution="Debian GNU/Linux 12",
    memory=8 << 30,
    cores=4,
    root=True,
    systemd=True,
    tools={"mount": "/bin/mount", "glusterd": ""},
)
FIT = Probe(
    FACTS, "", ("ext4", "xfs", "fuse"), True, 1_790_000_000.0, "/var/lib/quartermaster", 50 << 30, True, {80: ""}
)
MOUNT = Tool("mount", "mount", "mounts file systems")
GLUSTERD = Tool("glusterd", "glusterfs-server", "manages volumes")


def wrong(probe: Probe, **about: object) -> list[Check]:
    given = {"tools": {"": (MOUNT,)}, **about}
    return [check for check in judge_host(probe, **given) if check.state is not State.OK]  # type: ignore[arg-type]


def test_a_host_that_has_everything_is_fit() -> None:
    assert wrong(FIT) == []


@pytest.mark.parametrize(
    ("probe", "what", "state"),
    [
        (replace(FIT, facts=replace(FACTS, root=False)), "root", State.WARN),
        (replace(FIT, facts=replace(FACTS, kernel="4.19.0-26")), "kernel", State.FAIL),
        (replace(FIT, facts=replace(FACTS, kernel="5.2.21")), "kernel", State.FAIL),
        (replace(FIT, facts=replace(FACTS, memory=256 << 20)), "memory", State.WARN),
        (replace(FIT, facts=replace(FACTS, addresses=())), "addresses", State.WARN),
        (replace(FIT, file_systems=("ext4",)), "file systems", State.WARN),
        (replace(FIT, free=200 << 20), "state", State.WARN),
        (replace(FIT, free=50 << 20), "state", State.FAIL),
        (replace(FIT, writable=False), "state", State.FAIL),
        (replace(FIT, kept_time=False), "time sync", State.WARN),
        (replace(FIT, wall_s=3600.0), "clock", State.FAIL),
        (replace(FIT, ports={2379: "in use"}), "port 2379", State.WARN),
        (replace(FIT, facts=None, trouble="cannot list addresses"), "host", State.FAIL),
    ],
)
def test_each_lack_is_told_with_a_fix(probe: Probe, what: str, state: State) -> None:
    (check,) = wrong(probe)
    assert (check.what, check.state) == (what, state)
    assert check.fix


def test_a_missing_program_is_told_with_its_package_and_fails_only_who_needs_it() -> None:
    tools = {"": (MOUNT,), "glusterfs": (GLUSTERD,)}
    (unwanted,) = wrong(FIT, tools=tools)
    (needed,) = wrong(FIT, tools=tools, needed=["glusterfs"])
    assert (unwanted.state, needed.state) == (State.WARN, State.FAIL)
    assert needed.message == "missing: glusterd (manages volumes)"
    assert needed.fix == "install the packages glusterfs-server"


def test_the_ports_of_a_host_that_is_up_are_its_own() -> None:
    assert wrong(replace(FIT, ports={2379: "in use"}), running=True) == []


async def test_this_host_is_looked_at_as_it_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        probe = await probe_host(HostCommands(), tmp_path / "not" / "there", (taken,))
    assert probe.facts is not None
    assert probe.ports == {taken: "in use"}
    assert probe.writable
    assert probe.free > 0
    assert probe.wall_s > 1_700_000_000
