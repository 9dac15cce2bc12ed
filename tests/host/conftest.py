"""No test of the host layer may leave a mount, a loop device or a process behind."""

import os
import signal
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from quartermaster.testing.lab.disks import loops_under
from tests.host.namespaces import Namespace, private_namespace


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path) -> Iterator[None]:
    """Compared by the test's own directory and children: other programs on the machine may come and go."""
    before = processes_of(tmp_path)  # of tests elsewhere that share this process
    yield
    deadline = time.monotonic() + 3
    while (left := leftovers(tmp_path, before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in processes_of(tmp_path):
        if pid not in before:
            end(pid)
    assert left == []


def leftovers(directory: Path, before: Container[int]) -> list[str]:
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {directory}" in line]
    found = {pid: arguments for pid, arguments in processes_of(directory).items() if pid not in before}
    processes = [f"process {pid}: {arguments or 'zombie'}" for pid, arguments in found.items()]
    return [*mounts, *loops_under(directory), *processes]


def end(pid: int) -> None:
    """So that one test that failed does not spoil those after it."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def processes_of(directory: Path) -> dict[int, str]:
    """Children of ours, and whoever was started with the directory in its arguments."""
    left = {}
    ours = os.getpid()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            arguments = content(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            parent = int(content(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if pid != ours and (str(directory) in arguments or parent == ours):
            left[pid] = arguments
    return left


def content(file: str) -> str:
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.read(fd, 65536).decode(errors="replace")
    finally:
        os.close(fd)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with private_namespace() as found:
        yield found
