"""Programs that are forked and not executed: nobody finds them by what they are going to be."""

import asyncio
import os
import shutil
from pathlib import Path

from quartermaster.host import procfs
from quartermaster.host.commands import Command, HostCommands
from quartermaster.host.daemons import Daemon, DaemonState, DetachedDaemons
from quartermaster.host.daemons.records import TOKEN_VARIABLE, Record, Records
from quartermaster.host.starting import NAME, being_started, starting, until_started
from tests.host.unexecuted import Unexecuted

SLEEP = shutil.which("sleep") or "/bin/sleep"
LATER_S = 0.2  # that whoever waits has begun to


def test_a_child_is_on_its_way_until_it_is_executed() -> None:
    with Unexecuted([SLEEP, "300"], {}) as child:
        assert child.pid in [found.pid for found in being_started()]
        child.go()
        left = asyncio.run(until_started(timeout_s=60))
        assert child.pid not in left
        assert procfs.arguments(child.pid) == (SLEEP, "300")


def test_who_waits_is_told_of_those_that_are_late() -> None:
    with Unexecuted([SLEEP, "300"], {}) as child:
        assert child.pid in asyncio.run(until_started(timeout_s=0.05))


def test_neither_an_ordinary_process_nor_one_of_the_kernel_nor_a_dead_one_is_on_its_way() -> None:
    kernel = [found.pid for found in procfs.processes() if found.lives and not procfs.executable(found.pid)]
    dead = Unexecuted([SLEEP, "300"], {})
    os.close(dead._writing)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    try:
        found = [one.pid for one in being_started()]
        assert not {os.getpid(), dead.pid, *kernel} & set(found)
    finally:
        os.waitpid(dead.pid, 0)


async def test_who_has_started_a_program_has_its_own_name_again() -> None:
    before = Path("/proc/thread-self/comm").read_text()
    answer = await HostCommands().run(Command(("cat", "/proc/self/comm"), verb="look"))
    assert answer.text == "cat\n"
    assert Path("/proc/thread-self/comm").read_text() == before
    with starting():
        assert Path("/proc/thread-self/comm").read_text() == f"{NAME}\n"


async def test_a_daemon_whose_starter_died_before_it_was_executed_is_stopped_and_not_forgotten(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    daemon = Daemon("sleeper", (SLEEP, "300"))
    records.write(Record(daemon, token="token-1", boot=procfs.boot_id()))
    with Unexecuted(daemon.argv, {TOKEN_VARIABLE: "token-1"}) as child:
        asyncio.get_running_loop().call_later(LATER_S, child.go)
        assert await DetachedDaemons(HostCommands(), tmp_path).stop("sleeper")
        assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) < 0


async def test_a_daemon_whose_starter_died_before_it_was_executed_is_not_started_twice(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    daemon = Daemon("sleeper", (SLEEP, "300"))
    records.write(Record(daemon, token="token-1", boot=procfs.boot_id()))
    with Unexecuted(daemon.argv, {TOKEN_VARIABLE: "token-1"}) as child:
        asyncio.get_running_loop().call_later(LATER_S, child.go)
        status = await DetachedDaemons(HostCommands(), tmp_path).ensure(daemon)
        assert (status.state, status.pid) == (DaemonState.RUNNING, child.pid)
