"""A fake host for one scenario: its files, its programs, and a record of all that was run on it.

The programs are real executables. Each is a few lines of bash, which starts fast, that ask this process what to do; it
answers when ten milliseconds have passed. So a program takes as long for one library as for the other, and needs next
to no processor time, which is the contenders' then.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.connectors.kernel import Kernel
from bench.connectors.programs import PROGRAMS, READS_STDIN
from bench.connectors.programs.answer import Answer

PROGRAM_S = 0.010
COPIED = ("passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache")
DIRECTORIES = (
    *("bin", "dev/disk/by-id", "dev/disk/by-path", "dev/shm", "etc/iscsi/nodes", "etc/multipath", "lib/udev"),
    *("run/lock/iscsi", "proc/self", "modules", "state", "mounts", "tmp", "locks"),
    *("sys/class/block", "sys/block", "sys/class/scsi_device", "sys/class/scsi_host", "sys/class/iscsi_session"),
    *("sys/class/iscsi_host", "sys/class/iscsi_connection", "sys/bus/rbd"),
)
# The answer comes as lines: the exit code, what to print, what to say on standard error, and what to run.
PROGRAM = """#!/bin/bash
LC_ALL=C
exec 3<>/dev/tcp/127.0.0.1/{port} || exit 126
input=
{reading}
printf '%s\\0' $(($# + 2)) {name} "$@" "$input" >&3
read -r code <&3 && IFS= read -r out <&3 && IFS= read -r err <&3 && read -r -a then <&3 || exit 126
exec 3>&-
[[ $out ]] && printf '%b' "$out"
[[ $err ]] && printf '%b\\n' "$err" >&2
[[ $then ]] && {{ "${{then[@]}}"; code=$?; }}
exit $code
"""
READING = "IFS= read -r -d '' input"


class Ran(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    stdin: str
    at_s: float


class FakeHost:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.kernel = Kernel(root)
        self.ran: list[Ran] = []

    def commands(self, *programs: str) -> list[Ran]:
        """All that ran, or what ran of these programs."""
        return [each for each in self.ran if not programs or each.argv[0] in programs]

    def make(self, port: int) -> None:
        for name in DIRECTORIES:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            (self.root / "dev" / name).touch()
        (self.root / "dev/fd").symlink_to("/proc/self/fd")
        for name in COPIED:
            if (Path("/etc") / name).exists():
                shutil.copy(Path("/etc") / name, self.root / "etc" / name)
        (self.root / "etc/iscsi/initiatorname.iscsi").write_text("InitiatorName=iqn.2026-01.org.example:host\n")
        (self.root / "proc/swaps").write_text("Filename Type Size Used Priority\n")
        os.mkfifo(self.root / "never")
        self.kernel.mounts.write()
        for name in PROGRAMS:
            directory = "lib/udev" if name == "scsi_id" else "bin"
            file = self.root / directory / name
            file.write_text(PROGRAM.format(port=port, name=name, reading=READING if name in READS_STDIN else ":"))
            file.chmod(0o755)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        try:
            count = int((await reader.readuntil(b"\0"))[:-1])
            words = [(await reader.readuntil(b"\0"))[:-1].decode(errors="replace") for _ in range(count)]
            argv, stdin = words[:-1], words[-1]
            self.ran.append(Ran(tuple(argv), stdin, began))
            await asyncio.sleep(began + PROGRAM_S - time.monotonic())
            answer = PROGRAMS[argv[0]](self.kernel, argv[1:], stdin)
            writer.write(encoded(answer))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # whoever asked was killed
        finally:
            writer.close()


def encoded(answer: Answer) -> bytes:
    parts = (str(answer.code), escaped(answer.out), escaped(answer.err), " ".join(answer.then))
    return "".join(f"{part}\n" for part in parts).encode()


def escaped(data: bytes) -> str:
    """As bash's `printf %b` reads it."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\0{byte:03o}" for byte in data)


@asynccontextmanager
async def fake_host(directory: Path, name: str) -> AsyncIterator[FakeHost]:
    """The name is of the scenario and the contender: each has a host of its own."""
    hosts = directory / "hosts"
    hosts.mkdir(exist_ok=True)
    host = FakeHost(hosts / f"{len(list(hosts.iterdir()))}-{name}")
    host.root.mkdir()
    server = await asyncio.start_server(host.answer, "127.0.0.1", 0, backlog=1024)
    host.make(server.sockets[0].getsockname()[1])
    async with server:
        yield host


def inside(host: FakeHost, program: Sequence[str], *, python: str) -> list[str]:
    """The argument list of a program for which the fake host is the real one."""
    script = str(Path(__file__).with_name("inside.py"))
    return ["unshare", "--mount", "--propagation", "private", python, "-IS", script, str(host.root), *program]
