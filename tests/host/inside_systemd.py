"""What only a real systemd can show. Run inside one, by test_systemd_real.py."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.host import Daemon, DaemonState, HostCommands, gather_facts, open_host
from quartermaster.host.daemons import SystemdDaemons
from quartermaster.support.errors import DaemonError
from tests.host.test_daemons import forget_units, until

AGENT = """
import asyncio
from pathlib import Path
from quartermaster.host import Daemon, open_host
asyncio.run(open_host(Path("/run/agent")).daemons.ensure(Daemon("sleeper", ("sleep", "300"))))
print("started", flush=True)
import time; time.sleep(300)
"""


def words(*arguments: str) -> str:
    return subprocess.run(["systemctl", *arguments], check=False, capture_output=True, text=True).stdout.strip()


def qm(state: Path, *arguments: str) -> str:
    environment = {**os.environ, "QM_STATE_DIR": str(state), "HOME": str(state), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "quartermaster", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0 or arguments[0] == "doctor", done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def _no_units_left() -> Iterator[None]:
    yield
    forget_units()


def test_process_1_is_systemd() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"


async def test_the_systemd_runtime_is_chosen(tmp_path: Path) -> None:
    assert isinstance(open_host(tmp_path).daemons, SystemdDaemons)
    assert (await gather_facts(HostCommands())).systemd


async def test_a_daemon_outlives_the_unit_of_the_agent_that_started_it(tmp_path: Path) -> None:
    runtime = open_host(tmp_path).daemons
    start = ["systemd-run", "--quiet", "--unit=agent", "--working-directory", str(Path.cwd())]
    subprocess.run([*start, sys.executable, "-c", AGENT], check=True)

    async def running() -> bool:
        return (await runtime.status("sleeper")).running

    await until(running)
    before = await runtime.status("sleeper")
    # By its default it would kill all that is left in its control group.
    subprocess.run(["systemctl", "stop", "agent"], check=True)
    assert await runtime.status("sleeper") == before
    assert await runtime.stop("sleeper") is True


async def test_a_lasting_daemon_is_started_again_after_its_end_and_at_boot_until_it_is_stopped(
    tmp_path: Path,
) -> None:
    runtime = open_host(tmp_path).daemons
    first = await runtime.ensure(Daemon("lasting", ("sleep", "300"), lasting=True))
    assert first.lasting
    assert words("is-enabled", "quartermaster-lasting") == "enabled"
    os.kill(first.pid, signal.SIGKILL)

    async def another() -> bool:
        now = await runtime.status("lasting")
        return now.running and now.pid not in (0, first.pid)

    await until(another)
    assert [status.name for status in await runtime.list()] == ["lasting"]
    assert await runtime.stop("lasting") is True
    assert words("is-enabled", "quartermaster-lasting") in ("", "not-found")
    assert list(Path("/etc/systemd/system").glob("**/quartermaster-lasting*")) == []


async def test_a_host_that_was_brought_up_keeps_its_agent_until_it_is_taken_down(tmp_path: Path) -> None:
    """`qm up` with a real etcd, its agent killed, `qm down`."""
    up = qm(tmp_path, "up", "--name", "h1", "--address", "127.0.0.1", "--debounce", "0")
    assert up == "h1 is up\n"
    runtime = open_host(tmp_path).daemons
    before = await runtime.status("agent")
    member = await runtime.status("quartermaster-etcd")
    assert before.lasting
    assert member.running
    assert not member.lasting
    assert "started again by systemd" in qm(tmp_path, "doctor", "--no-store")
    os.kill(before.pid, signal.SIGKILL)

    async def back() -> bool:
        now = await runtime.status("agent")
        return now.running and now.pid not in (0, before.pid)

    await until(back)
    assert await runtime.status("quartermaster-etcd") == member
    assert qm(tmp_path, "down") == "agent stopped\nquartermaster-etcd stopped\n"
    assert list(Path("/etc/systemd/system").glob("**/quartermaster-*")) == []


async def test_what_cannot_be_started_at_all_is_an_error(tmp_path: Path) -> None:
    runtime = open_host(tmp_path).daemons
    with pytest.raises(DaemonError, match="cannot start lost: systemctl exited with 1"):
        await runtime.ensure(Daemon("lost", ("sleep", "300"), directory="/quartermaster/nowhere"))


async def test_a_daemon_that_ends_at_once_can_be_started_as_often_as_the_caller_likes(tmp_path: Path) -> None:
    """systemd itself would refuse after five starts within ten seconds."""
    runtime = open_host(tmp_path).daemons
    daemon = Daemon("short", ("sh", "-c", "exit 4"))

    async def dead() -> bool:
        return (await runtime.status("short")).state is DaemonState.DEAD

    for _ in range(8):
        await runtime.ensure(daemon)
        await until(dead)
        assert (await runtime.status("short")).exit_code == 4


async def test_the_log_is_what_the_daemon_wrote_and_nothing_that_systemd_says_of_it(tmp_path: Path) -> None:
    runtime = open_host(tmp_path).daemons
    await runtime.ensure(Daemon("speaker", ("sh", "-c", "echo one; echo two; exec sleep 300")))

    async def said() -> bool:
        return await runtime.logs("speaker") == "one\ntwo\n"

    await until(said)
    await runtime.stop("speaker")
    assert await runtime.logs("speaker") == "one\ntwo\n"
