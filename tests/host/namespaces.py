"""Real disks and mounts that leave nothing behind: mounts live in a namespace that ends with its keeper."""

import asyncio
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from quartermaster.host.commands import HostCommands, inside
from quartermaster.host.mounts import HostMounts


@dataclass(frozen=True)
class Namespace:
    """A private mount namespace; `mounts` and `commands` work inside it."""

    pid: int

    @property
    def commands(self) -> HostCommands:
        return HostCommands(prefix=inside(self.pid))

    @property
    def mounts(self) -> HostMounts:
        return HostMounts(self.commands, mountinfo=Path(f"/proc/{self.pid}/mountinfo"))

    def seen(self, path: Path | str) -> Path:
        """A path as it is seen inside."""
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, *argv: str, pass_fds: tuple[int, ...] = ()) -> None:
        subprocess.run([*inside(self.pid), *argv], check=True, pass_fds=pass_fds, capture_output=True)


@contextmanager
def private_namespace() -> Iterator[Namespace]:
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        try:
            yield Namespace(keeper.pid)
        finally:
            keeper.kill()


@contextmanager
def loop_device(directory: Path, *, size: int = 320 << 20, read_only: bool = False) -> Iterator[str]:
    file = directory / f"disk-{len(list(directory.glob('disk-*')))}"
    with file.open("wb") as sparse:
        sparse.truncate(size)
    argv = ["losetup", "--find", "--show", *(["--read-only"] if read_only else []), str(file)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        file.unlink()


def write_partition_table(device: str) -> None:
    """A DOS table with one partition; the kernel is not told."""
    entry = struct.pack("<B3sB3sII", 0, b"", 0x83, b"", 2048, 20480)
    with open(device, "r+b") as disk:
        disk.seek(446)
        disk.write(entry.ljust(64, b"\0") + b"\x55\xaa")
        disk.flush()
        os.fsync(disk.fileno())


class FuseServer:
    """A FUSE file system that answers only its greeting: whoever looks at it waits in the kernel until it dies."""

    def __init__(self, namespace: Namespace, target: Path) -> None:
        target.mkdir()
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0"
        namespace.run("mount", "-i", "-t", "fuse", "-o", options, "silent", str(target), pass_fds=(self.fd,))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.fd, self._answer)

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            request = os.read(self.fd, 1 << 17)
            opcode, unique = struct.unpack_from("<IQ", request, 4)
            if opcode == 26:  # FUSE_INIT
                reply = struct.pack("<IIIIHHIIHH32x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0)
                os.write(self.fd, struct.pack("<IiQ", 16 + len(reply), 0, unique) + reply)

    def die(self) -> None:
        if self.fd >= 0:
            self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1


@contextmanager
def fuse_server(namespace: Namespace, target: Path) -> Iterator[FuseServer]:
    with ExitStack() as stack:
        server = FuseServer(namespace, target)
        stack.callback(server.die)
        yield server
