"""Programs that nobody has a record of: found by their files, and ended, and never another one with the same number."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.host.programs import HostPrograms, Program
from quartermaster.support import entropy

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Of a name that nothing else on this machine has."""
    copied = tmp_path / f"sleeper-{entropy.name_suffix(8)}"
    shutil.copy("/bin/sleep", copied)
    with subprocess.Popen([copied, "300"]) as process:
        yield process
        process.kill()


async def found_as(name: str) -> Program:
    programs = HostPrograms()
    while not (found := await programs.running("no-such-program", name)):
        await asyncio.sleep(0.01)
    assert len(found) == 1
    return found[0]


async def test_a_program_is_found_by_the_name_of_its_file_and_ended(sleeper: subprocess.Popen[bytes]) -> None:
    name = Path(str(sleeper.args[0])).name  # type: ignore[index]
    program = await found_as(name)
    assert (program.pid, program.arguments[1:]) == (sleeper.pid, ("300",))
    assert await HostPrograms().end(program)
    assert sleeper.wait(timeout=5) == -signal.SIGTERM
    assert await HostPrograms().running(name) == ()
    assert not await HostPrograms().end(program)


async def test_another_process_with_the_same_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    program = await found_as(Path(str(sleeper.args[0])).name)  # type: ignore[index]
    assert not await HostPrograms().end(replace(program, started=program.started - 1))
    assert sleeper.poll() is None


async def test_one_that_does_not_heed_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        programs = HostPrograms()
        found = next(one for one in await programs.running(Path(sys.executable).name) if one.pid == process.pid)
        assert await programs.end(found, timeout_s=0.05)
        assert process.wait(timeout=5) == -signal.SIGKILL


def test_the_word_behind_an_option_is_found() -> None:
    program = Program(1, 1, ("/usr/sbin/glusterfsd", "-s", "h1", "--process-name", "brick"))
    assert (program.name, program.after("-s"), program.after("--process-name"), program.after("brick")) == (
        "glusterfsd",
        "h1",
        "brick",
        "",
    )
