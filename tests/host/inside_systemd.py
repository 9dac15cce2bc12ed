"""What only a real systemd can show. Run inside one, by test_systemd_real.py."""

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
