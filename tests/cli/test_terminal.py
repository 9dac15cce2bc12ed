"""What differs on a terminal: questions, colours, progress; and Ctrl-C at any moment."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quartermaster.cli import progress
from quartermaster.cli.progress import Progress, announce_reading
from tests.cli.conftest import TIMEOUT_S, Cli, Program, node

pytestmark = pytest.mark.slow

Write = Callable[[str, str], Path]


def on_terminal(qm: Program, *arguments: str, typed: str = "") -> tuple[int, str]:
    """The exit code and everything that a person at a terminal sees."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*qm.command, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=qm.directory, env=qm.environment
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:
            pass  # how Linux says that nobody has the terminal open any more
        os.close(ours)
        code = process.wait(timeout=TIMEOUT_S)
    return code, seen.decode().replace("\r\n", "\n")


def test_deleting_all_asks_first(qm: Program) -> None:
    qm("apply", "-f", "-", stdin=node("a") + "---\n" + node("b"))
    code, seen = on_terminal(qm, "delete", "sn", "--all", typed="n\n")
    assert code == 1
    assert "Delete 2 objects? [y/N]" in seen
    assert "nothing was deleted" in seen
    code, seen = on_terminal(qm, "delete", "sn", "--all", typed="y\n")
    assert code == 0
    assert seen.count(" deleted") == 2


def test_ctrl_c_ends_a_question(qm: Program) -> None:
    qm("apply", "-f", "-", stdin=node("a"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*qm.command, "delete", "sn", "--all"], stdin=theirs, stdout=theirs, stderr=theirs, env=qm.environment
    )
    try:
        os.close(theirs)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 65536)
        until_it_reads(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert qm("get", "sn", "a").code == 0


def until_it_reads(pid: int) -> None:
    """A signal right before a read is noticed after it; nobody is that quick. It has asked, and sleeps: it reads."""
    looks = 0
    while looks < 10:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        looks = looks + 1 if state == "S" else 0
        time.sleep(0.02)


def test_colours_are_for_terminals_and_for_those_who_want_them(qm: Program, write: Write) -> None:
    qm("apply", "-f", "-", stdin=node("a"))
    write("changed.yaml", node("a", devices="[/dev/vdb]"))
    assert "\x1b[" not in qm("diff", "-f", "changed.yaml").out
    assert "\x1b[" not in on_terminal(qm, "diff", "-f", "changed.yaml")[1]
    del qm.environment["NO_COLOR"]
    assert "\x1b[" not in qm("diff", "-f", "changed.yaml").out
    assert "\x1b[32m+  devices:" in on_terminal(qm, "diff", "-f", "changed.yaml")[1]


def test_an_interrupted_apply_says_how_far_it_came_and_is_completed_by_the_same_command(
    qm: Program, write: Write, running: Callable[..., subprocess.Popen[str]]
) -> None:
    count = 400
    path = write("many.yaml", "---\n".join(node(f"n{number:04}") for number in range(count)))
    process = running("apply", "-f", path)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert f" of {count} objects were written" in err
    assert "run the same command again to complete it" in err
    assert "Traceback" not in err
    written = len(qm("get", "sn", "-o", "name").lines)
    assert 3 <= written < count
    again = qm("apply", "-f", path)
    assert (again.code, len(again.lines)) == (0, count)
    assert len(qm("get", "sn", "-o", "name").lines) == count


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.text = ""
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def sit_at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: the test runner puts its own standard error in place before the test itself begins."""
    found = Terminal(True)
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(sys, "stdout", Terminal(False))
    return found


def test_progress_is_shown_from_the_second_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = sit_at_terminal(monkeypatch)
    now = 0.0
    monkeypatch.setattr(progress.clock, "monotonic", lambda: now)
    shown = Progress("applied", 3)
    shown.step()
    assert terminal.text == ""
    now = 1.5
    shown.step()
    assert terminal.text == "\rapplied 2 of 3\x1b[K"
    shown.clear()
    assert terminal.text.endswith("\r\x1b[K")


def test_without_a_terminal_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    sit_at_terminal(monkeypatch)
    terminal = Terminal(False)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "_AFTER_S", 0)
    shown = Progress("applied", 3)
    shown.step()
    shown.clear()
    assert terminal.text == ""


def test_reading_much_is_announced(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    terminal = sit_at_terminal(monkeypatch)
    announce_reading([str(write("small.yaml", "a"))])
    assert terminal.text == ""
    large = write("large/one.yaml", "a" * 3_000_000)
    announce_reading([str(large.parent), "-"])
    assert terminal.text == "reading 3 MB\n"


def test_a_verbose_run_says_more_on_standard_error_only(cli: Cli) -> None:
    result = cli("-v", "get", "sn", "-o", "name")
    assert (result.code, result.out) == (0, "")


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_an_error_has_no_colours_where_nobody_wants_them(qm: Program, variable: str, value: str) -> None:
    del qm.environment["NO_COLOR"]
    qm.environment[variable] = value
    code, seen = on_terminal(qm, "get", "sn", "nobody")
    assert code == 1
    assert "error: cannot find" in seen
    assert "\x1b[" not in seen


def test_an_error_on_a_terminal_is_red(qm: Program) -> None:
    del qm.environment["NO_COLOR"]
    assert "\x1b[31m\x1b[1merror:" in on_terminal(qm, "get", "sn", "nobody")[1]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_no_mistake_of_ours(qm: Program, unbuffered: str) -> None:
    qm("apply", "-f", "-", stdin=node("a"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*qm.command, "get", "sn"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            env={**qm.environment, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: cannot write the output: No space left on device\n")


def test_an_interrupted_delete_says_how_far_it_came(
    qm: Program, write: Write, running: Callable[..., subprocess.Popen[str]]
) -> None:
    count = 400
    qm("apply", "-f", write("many.yaml", "---\n".join(node(f"n{number:04}") for number in range(count))))
    process = running("delete", "sn", "--all", "--yes")
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    told = re.search(r"interrupted: (\d+) objects deleted, (\d+) objects remain", err)
    assert told is not None
    assert int(told[1]) + int(told[2]) == count
    assert len(qm("get", "sn", "-o", "name").lines) in (int(told[2]), int(told[2]) - 1)
