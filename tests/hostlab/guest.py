"""A kernel of its own as a process of this machine: boots, runs tests, ends.

It is a process tree of its own that the kernel takes with whoever started it. Everything has a deadline; a guest that
misses one is killed by its pid, and the next test gets a new one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.hostlab import build, preloaded

HERE = Path(__file__).resolve().parent
AGENT = HERE / "agent.py"
MEMORY = "1536M"
# In a process namespace of its own, whose first process dies with us: nothing of the guest outlives a killed test.
KEEP = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child")
BOOT_TIMEOUT_S = 180.0  # three seconds, but for a machine that has other work
ANSWER_MARGIN_S = 8.0  # for a test that is killed inside, and its answer
END_TIMEOUT_S = 10.0
POLL_S = 0.02


class GuestError(Exception):
    """The guest does not do what it should; the text has the last of its console."""


class Machine:
    """What boots: its argument list for a directory that both sides see, and how long that may take."""

    def __init__(self, command: Callable[[Path], Sequence[str]], *, boot_timeout_s: float = BOOT_TIMEOUT_S) -> None:
        self.command = command
        self.boot_timeout_s = boot_timeout_s


class Guest:
    def __init__(self, machine: Machine) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hostlab-"))
        self._console = self.directory / "console"
        self._number = 0
        started = time.monotonic()
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                machine.command(self.directory),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,  # a kernel that panics ends its whole process group
            )
        try:
            self.ready: dict[str, Any] = self._wait_for("ready.json", machine.boot_timeout_s, "boot")
        except BaseException:
            self.end()
            raise
        self.boot_s = time.monotonic() - started

    def run(self, node: str, *, timeout_s: float) -> dict[str, Any]:
        """Run one test inside. The answer has its reports, its output and what the kernel said meanwhile."""
        self._number += 1
        request = self.directory / f"request-{self._number}.json"
        part = request.with_suffix(".part")
        part.write_text(json.dumps({"node": node, "timeout_s": timeout_s}))
        part.rename(request)
        limit_s = timeout_s + ANSWER_MARGIN_S
        answer: dict[str, Any] = self._wait_for(f"answer-{self._number}.json", limit_s, f"run {node}")
        return answer

    def end(self) -> None:
        """There is nothing in it to be kept: no need to shut it down."""
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_for(self, name: str, timeout_s: float, verb: str) -> Any:
        path = self.directory / name
        ends = time.monotonic() + timeout_s
        while not path.exists():
            if self._process.poll() is not None and not path.exists():
                raise GuestError(f"cannot {verb}: the guest ended with code {self._process.returncode}{self._last()}")
            if time.monotonic() > ends:
                raise GuestError(f"cannot {verb}: no answer within {timeout_s:.0f} s{self._last()}")
            time.sleep(POLL_S)
        return json.loads(path.read_text())

    def _last(self) -> str:
        logs = sorted(self.directory.glob("log-*"), key=lambda path: path.stat().st_mtime)
        texts = [path.read_text(errors="replace")[-6000:] for path in [*logs[-1:], self._console]]
        return "\n" + "\n".join(texts)


def user_mode_linux(cpu: int) -> Machine:
    layer = build()
    return Machine(lambda directory: command(layer, directory, cpu=cpu))


def command(layer: Path, directory: Path, *, cpu: int) -> list[str]:
    # As a child of that first process, which no signal ends: the kernel aborts when it panics.
    child = ["sh", "-c", '"$@"; exit $?', "sh"]
    # On one processor: the kernel and the processes in it hand every system call to each other.
    pin = ["taskset", "--cpu-list", str(cpu)]
    # The kernel hands words that it does not know to its first process, as variables.
    words = {"LAB_LAYER": layer, "LAB_EXCHANGE": directory}
    kernel = [
        "env",
        f"LD_PRELOAD={preloaded(layer)}",
        str(layer / "usr/bin/linux.uml"),
        f"mem={MEMORY}",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "con=null",
        "con0=null,fd:1",
        f"uml_dir={directory}",
        "umid=uml",
        f"init={os.path.abspath(sys.executable)}",
        *(f"{name}={value}" for name, value in words.items()),
    ]
    return [*KEEP, *child, *pin, *kernel, "--", "-X", "faulthandler", str(AGENT)]
