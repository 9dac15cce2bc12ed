"""A lab leaves nothing behind, wherever its maker was when it died."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quartermaster.host.targets import prepare_directory
from quartermaster.testing.lab import Lab, LabError, disks
from quartermaster.testing.lab.state import STATE_FILE
from tests.testing.lab_traces import Traces, routes, traces_of

pytestmark = [pytest.mark.netns]


async def test_a_lab_that_was_destroyed_leaves_nothing_and_may_be_destroyed_again(tmp_path: Path) -> None:
    before = routes()
    lab = await Lab.create(tmp_path / "lab", hosts=3, disks=2)
    await lab.hosts[0].run(["sh", "-c", "mkfs.xfs -q /dev/vdb && mount /dev/vdb /mnt"])
    await lab.hosts[1].spawn(["sleep", "300"])
    traces = traces_of(lab.directory)
    assert sorted(map(len, traces.hosts)) == [1, 5, 5, 5], "five kinds for each host, and the network of the switch"
    assert len(traces.loops()) == 6
    assert traces.interfaces()
    await lab.destroy()
    await lab.destroy()
    assert traces.left_after_settling() == []
    assert not lab.directory.exists()
    assert lab.subnet not in routes()
    assert len(routes().splitlines()) <= len(before.splitlines()) + 4, "those of other labs at most"


async def test_users_of_a_lab_from_outside_do_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "_GONE_TIMEOUT_S", 0.3)
    lab = await Lab.create(tmp_path / "lab", hosts=1, disks=1, disk_size="512Mi")
    host = lab.hosts[0]
    traces = traces_of(lab.directory)
    entering = ["nsenter", f"--target={host.pid}", "--mount", "--net", "--", "sleep", "300"]
    device = (await host.run(["readlink", "/dev/vdb"])).text.strip()
    await host.run(["mkfs.ext4", "-q", "/dev/vdb"])
    outside = tmp_path / "outside"
    outside.mkdir()
    subprocess.run(["mount", device, str(outside)], check=True)
    with subprocess.Popen(entering) as without_pid_namespace:
        try:
            await until_in_network(without_pid_namespace.pid, host.pid)
            with pytest.raises(
                LabError, match=r"cannot end the host h1: its disk /dev/loop\d+ is still in use outside of it"
            ):
                await host.kill()
            monkeypatch.undo()
            await lab.destroy()
            assert without_pid_namespace.wait(10) == -9
        finally:
            without_pid_namespace.kill()
    assert not os.path.ismount(outside)
    assert traces.left_after_settling() == []


async def until_in_network(pid: int, of: int) -> None:
    """A command that enters a host is on its way there for a moment after its start."""
    async with asyncio.timeout(20):
        while os.readlink(f"/proc/{pid}/ns/net") != os.readlink(f"/proc/{of}/ns/net"):
            await asyncio.sleep(0.01)


MAKER = """
import asyncio, os, signal, sys
from pathlib import Path
from quartermaster.host import processes
from quartermaster.testing.lab import Lab

moment, keep = int(sys.argv[2]), sys.argv[3] == "keep"
count = 0
original = processes._Child.__init__

def die_at_the_moment():
    global count
    count += 1
    if count == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def start(self, *arguments):
    die_at_the_moment()                 # before a command
    original(self, *arguments)
    die_at_the_moment()                 # while it runs

processes._Child.__init__ = start

async def main():
    progress = lambda text: die_at_the_moment()
    lab = await Lab.create(sys.argv[1], hosts=2, disks=1, disk_size="64Mi", keep=keep, progress=progress)
    print("made", count, flush=True)
    await asyncio.sleep(60 if moment else 0)

asyncio.run(main())
"""


def make(directory: Path, moment: int, *, keep: bool) -> subprocess.CompletedProcess[str]:
    """A process that makes a lab and dies at the moment of that number; 0 for never."""
    argv = [sys.executable, "-c", MAKER, str(directory), str(moment), "keep" if keep else "end"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [pytest.param(6, id="some moments"), pytest.param(1, id="all", marks=pytest.mark.deep)]
)
def test_wherever_its_maker_was_killed_another_process_takes_a_lab_away(tmp_path: Path, step: int) -> None:
    whole = make(tmp_path / "whole", 0, keep=True)
    assert whole.returncode == 0, whole.stderr
    moments = int(whole.stdout.split()[1])
    assert moments > 20
    destroy_and_look(tmp_path / "whole")
    for moment in range(1, moments + 1, step):
        directory = tmp_path / str(moment)
        ended = make(directory, moment, keep=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        destroy_and_look(directory)


def destroy_and_look(directory: Path) -> None:
    traces = traces_of(directory)
    asyncio.run(Lab.open(directory).destroy())
    assert traces.left_after_settling() == []
    assert not directory.exists()


@pytest.mark.slow
def test_a_lab_that_is_not_kept_ends_with_its_maker(tmp_path: Path) -> None:
    moments = int(make(tmp_path / "whole", 0, keep=False).stdout.split()[1])
    for moment in (moments // 3, moments // 2, moments - 1, moments):
        directory = tmp_path / str(moment)
        assert make(directory, moment, keep=False).returncode == -signal.SIGKILL
        left_without_help(traces_of(directory))
        lab = Lab.open(directory)
        with pytest.raises(LabError, match="it ended with its process"):
            asyncio.run(lab.boot())
        asyncio.run(lab.destroy())
        assert not directory.exists()


def left_without_help(traces: Traces) -> None:
    deadline = time.monotonic() + 10
    while (left := [*traces.processes(), *traces.loops(), *traces.interfaces()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


async def test_a_lab_that_cannot_be_made_is_taken_away(tmp_path: Path) -> None:
    async with await Lab.create(tmp_path / "first", hosts=1, disks=0) as first:
        with pytest.raises(LabError, match=r"cannot use .* as a subnet: this machine has a route to"):
            await Lab.create(tmp_path / "second", hosts=1, disks=0, subnet=first.subnet)
    assert not (tmp_path / "second").exists()


async def test_a_lab_whose_making_is_cancelled_is_taken_away(tmp_path: Path) -> None:
    directory = tmp_path / "lab"
    connected = asyncio.Event()
    task = asyncio.ensure_future(
        Lab.create(directory, hosts=3, progress=lambda text: connected.set() if "connected" in text else None)
    )
    async with asyncio.timeout(20):
        await connected.wait()
    traces = traces_of(directory)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert traces.left_after_settling() == []
    assert not directory.exists()


async def test_after_the_machine_was_started_a_kept_lab_is_started_again_with_its_disks(tmp_path: Path) -> None:
    lab = await Lab.create(tmp_path / "lab", hosts=2, disks=1, disk_size="64Mi", keep=True)
    try:
        await lab.hosts[0].run(["sh", "-c", "echo text > /dev/vdb; echo text > /etc/qm-lab-test"])
        traces = traces_of(lab.directory)
        for line in traces.processes():
            os.kill(int(line.split()[1].rstrip(":")), signal.SIGKILL)
        again = Lab.open(lab.directory)
        async with asyncio.timeout(10):
            while any(host.up for host in again.hosts):
                await asyncio.sleep(0.01)
        await again.boot()
        assert (await again.hosts[0].run(["head", "-c", "4", "/dev/vdb"])).text == "text"
        assert (await again.hosts[0].run(["cat", "/etc/qm-lab-test"])).text == "text\n"
    finally:
        await lab.destroy()


async def test_a_damaged_state_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text('{"id":')
    with pytest.raises(LabError, match=r"cannot read the lab in .*: lab.json is damaged"):
        Lab.open(tmp_path)
    with pytest.raises(LabError, match=r"cannot find a lab in .*nowhere; `qm lab up` makes one"):
        Lab.open(tmp_path / "nowhere")


async def test_a_protected_target_on_a_host_does_not_keep_the_lab(tmp_path: Path) -> None:
    lab = await Lab.create(tmp_path / "lab", hosts=1, disks=0)
    prepare_directory(str(lab.hosts[0].state / "target"), protect=True)
    await lab.destroy()
    assert not (tmp_path / "lab").exists()
