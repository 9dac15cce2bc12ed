"""Programs inside the guest: run one, start one, wait for something."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STATE = Path("/var/hostlab")  # in memory, as all that a guest writes


def run(*argv: str | Path, timeout_s: float = 60, check: bool = True) -> str:
    done = subprocess.run(
        [*map(str, argv)], capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def start(*argv: str | Path) -> int:
    """The pid of a program that stays, longer than the test if need be; what it says goes to a file in STATE."""
    words = [*map(str, argv)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [(os.POSIX_SPAWN_OPEN, number, str(log_of(words[0])), flags, 0o644) for number in (1, 2)]
    return os.posix_spawnp(words[0], words, os.environ, file_actions=files, setsid=True)


def log_of(program: str) -> Path:
    return STATE / f"{program}.log"


def wait_for(look: Callable[[], T], *, timeout_s: float = 60) -> T:
    """What `look` finds, once it is more than nothing."""
    ends = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < ends, f"it did not happen within {timeout_s:g} s"
        time.sleep(0.02)
    return found


def load(*modules: str) -> None:
    run("modprobe", "--all", *modules)


def alive(name: str) -> bool:
    """Whether a program of that name is running."""
    return any(read(path / "comm") == name for path in Path("/proc").glob("[0-9]*"))


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
