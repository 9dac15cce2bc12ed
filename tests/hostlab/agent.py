"""The first process of the guest: makes its root, and runs one test after the other, as the machine below asks for it.

Requests and answers are files in a directory of the machine, for there is no network between the two. A test runs in a
child that has everything imported already; its reports go back as pytest's workers send them. A child that does not end
in time is made to say where it is, and killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from root import enter_root  # beside this file: a program that starts has no other path yet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXCHANGE = Path("/run/exchange")
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "QUARTERMASTER_HOSTLAB": "guest",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
INITIATOR = "iqn.2026-01.example:hostlab"
POLL_S = 0.02
LAST_WORDS_S = 3.0
# Only the plugins that these tests use, and no fixtures from above: imports are what a guest is slow at.
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout")
OPTIONS = ["-q", "--tb=short", "-m", "", "-o", "timeout=0", "-p", "no:cacheprovider", "--confcutdir", str(HERE)]
OPTIONS += [option for plugin in PLUGINS for option in ("-p", plugin)]


class Reports:
    """A plugin that keeps what pytest reports, in the form in which it travels."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self._config: Any = None

    def pytest_configure(self, config: Any) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.kept.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def prepare() -> None:
    """What a host has before anybody attaches a volume."""
    os.environ |= ENVIRONMENT
    sys.path[0] = str(ROOT)
    kind = os.environ.get("LAB_SHARES", "hostfs")
    enter_root(os.environ["LAB_LAYER"], os.environ["LAB_EXCHANGE"], str(ROOT), kind=kind)
    os.chdir(ROOT)
    socket.sethostname("hostlab")
    for directory in ("/run/lock/iscsi", "/run/udev", "/etc/target", "/etc/iscsi", "/var/hostlab"):
        Path(directory).mkdir(parents=True, exist_ok=True)
    Path("/etc/iscsi/initiatorname.iscsi").write_text(f"InitiatorName={INITIATOR}\n")
    Path("/proc/sys/kernel/printk").write_text("4")
    run("ip", "link", "set", "lo", "up")
    run("/lib/systemd/systemd-udevd", "--daemon")


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=60, stdin=subprocess.DEVNULL)


def serve() -> None:
    number = 1
    while True:
        request = EXCHANGE / f"request-{number}.json"
        if request.exists():
            answer(number, json.loads(request.read_text()))
            number += 1
        reap()
        time.sleep(POLL_S)


def answer(number: int, request: dict[str, Any]) -> None:
    seen = len(kernel_log())
    log = EXCHANGE / f"log-{number}"
    reports = EXCHANGE / f"reports-{number}.json"
    pid = os.fork()
    if pid == 0:
        test(request["node"], log, reports)
    ends = time.monotonic() + request["timeout_s"]
    in_time = wait(pid, ends)
    if not in_time:
        # faulthandler shows the stack of every thread at this signal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGABRT)
        wait(pid, time.monotonic() + LAST_WORDS_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    said = {
        "reports": json.loads(reports.read_text()) if reports.exists() else [],
        "in_time": in_time,
        "log": log.read_text(errors="replace") if log.exists() else "",
        "kernel": kernel_log()[seen:],
    }
    put(f"answer-{number}.json", said)


def test(node: str, log: Path, reports: Path) -> None:
    """In the child; it never returns."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    code = 70
    try:
        import pytest

        keeper = Reports()
        code = int(pytest.main([*OPTIONS, node], plugins=[keeper]))
        put(reports.name, keeper.kept)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def wait(pid: int, ends: float) -> bool:
    while time.monotonic() < ends:
        found, _ = os.waitpid(pid, os.WNOHANG)
        if found == pid:
            return True
        time.sleep(POLL_S)
    return False


def reap() -> None:
    """Daemons that tests have started become children of the first process when they end."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def put(name: str, content: Any) -> None:
    """Whole or not at all: the other side looks for the name."""
    part = EXCHANGE / f".{name}"
    part.write_text(json.dumps(content))
    part.rename(EXCHANGE / name)


def kernel_log() -> str:
    shown = subprocess.run(["dmesg", "--notime"], capture_output=True, text=True, timeout=20, check=False)
    return shown.stdout


def preload() -> None:
    """Imported once, so that each test begins at once. Nothing here may start a thread: children are forks.

    Not the plugins of pytest, which want to be rewritten when they are imported.
    """
    import pytest  # noqa: F401

    import quartermaster.connectors.connector  # noqa: F401


def main() -> None:
    prepare()
    preload()
    put("ready.json", {"release": os.uname().release, "uptime_s": float(Path("/proc/uptime").read_text().split()[0])})
    serve()


if __name__ == "__main__":
    main()
