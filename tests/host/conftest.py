"""No test of the host layer may leave a mount, a loop device or a process behind."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.namespaces import Namespace, private_namespace


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    """Compared by the test's own directory and children: other programs on the machine may come and go."""
    yield
    deadline = time.monotonic() + 3
    while (left := leftovers(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def leftovers(directory: Path) -> list[str]:
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {directory}" in line]
    return mounts + loops_of(directory) + processes_of(directory)


def loops_of(directory: Path) -> list[str]:
    backing = (file for file in Path("/sys/block").glob("loop*/loop/backing_file"))
    return [f"{file.parts[3]} {file.read_text().strip()}" for file in backing if str(directory) in file.read_text()]


def processes_of(directory: Path) -> list[str]:
    """Children of ours, and whoever was started with the directory in its arguments."""
    left = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory) in arguments or (parent == os.getpid() and "forkserver" not in arguments):
            left.append(f"process {entry.name}: {arguments or 'zombie'}")
    return left


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with private_namespace() as found:
        yield found
