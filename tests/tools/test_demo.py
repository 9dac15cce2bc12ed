"""The README's first command: it shows what it says, and leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
END_S = 60.0

pytestmark = [pytest.mark.etcd, pytest.mark.slow]


def demo(temporary: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(temporary: Path) -> list[str]:
    """Commands that mention the demo's own directory: its servers and its `qm`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if entry.name != str(os.getpid()) and (str(temporary) in command or str(temporary) in environment):
            found.append(command)
    return found


def nothing_is_left(temporary: Path) -> None:
    deadline = time.monotonic() + 10
    while processes_of(temporary) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(temporary) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("quartermaster-demo")] == []


def test_the_demo_shows_a_store_that_loses_nothing(tmp_path: Path) -> None:
    process = demo(tmp_path)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0, output
    assert "✓ three nodes are there, none is lost" in output
    assert "✓ it saw each of the three once" in output
    nothing_is_left(tmp_path)


@pytest.mark.parametrize("moment", ["$ qm apply", "$ qm context use", "# SIGKILL"])
def test_an_interrupted_demo_takes_everything_down(tmp_path: Path, moment: str) -> None:
    process = demo(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(moment):
            break
    else:
        pytest.fail(f"the demo never came to {moment}")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=END_S)
    assert process.returncode == 130
    nothing_is_left(tmp_path)
