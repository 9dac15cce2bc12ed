"""Real servers of block protocols on loopback, for as long as a test runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

IQN = "iqn.2026-01.test.quartermaster:disk"
USER, PASSWORD = "host-1", "a-secret-for-chap"


@dataclass(frozen=True)
class IscsiTarget:
    portal: str
    iqn: str = IQN
    lun: int = 1


@contextmanager
def nbd_server(image: Path, *, port: int = 0) -> Iterator[int]:
    """The image as the export "disk"; the port."""
    port = port or free_port()
    argv = ["qemu-nbd", "--format=raw", f"--port={port}", "--bind=127.0.0.1", "--export-name=disk", "--persistent"]
    with running([*argv, "--shared=4", str(image)]):
        wait_for(lambda: answers(port))
        yield port


@contextmanager
def iscsi_target(image: Path, *, chap: bool = False) -> Iterator[IscsiTarget]:
    port = free_port()
    target = IscsiTarget(f"127.0.0.1:{port}")
    admin = admin_of(target)
    with running(["tgtd", "-f", "-C", control_of(target), "--iscsi", f"portal=127.0.0.1:{port}"]):
        wait_for(lambda: admin("--mode", "target", "--op", "show", check=False))
        admin("--mode", "target", "--op", "new", "--tid", "1", "--targetname", IQN)
        admin("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store", str(image))
        admin("--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL")
        if chap:
            admin("--mode", "account", "--op", "new", "--user", USER, "--password", PASSWORD)
            admin("--mode", "account", "--op", "bind", "--tid", "1", "--user", USER)
        yield target


def control_of(target: IscsiTarget) -> str:
    """The number of tgtd's own socket, which is not larger than a short."""
    return str(1 + int(target.portal.rpartition(":")[2]) % 30000)


def admin_of(target: IscsiTarget) -> Callable[..., bool]:
    def admin(*arguments: str, check: bool = True) -> bool:
        argv = ["tgtadm", "-C", control_of(target), "--lld", "iscsi", *arguments]
        return subprocess.run(argv, check=check, capture_output=True, timeout=10).returncode == 0

    return admin


@contextmanager
def running(argv: list[str]) -> Iterator[int]:
    """Killed in the end: tgtd with a target does not listen to a milder signal."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        try:
            yield child.pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)


def daemons_of(directory: Path) -> list[int]:
    """The clients of a connector with its state in the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"qemu-storage-daemon" in arguments and os.fsencode(directory) in arguments:
            found.append(int(process.name))
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_for(look: Callable[[], bool], *, seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not look():
        if time.monotonic() > ends:
            raise AssertionError(f"it did not happen within {seconds} s")
        time.sleep(0.02)
