"""The first process of a virtual host, and the keeper of a lab's switch: a program of its own, run by path.

    init.py hub  LAB NAME -    OWNER
    init.py host LAB NAME PLAN OWNER

A virtual host is this process: it is number 1 in a PID namespace, holds the namespaces of network, mounts, names and
IPC, and keeps the host's loop devices open, which the kernel detaches with the last one who has them open. Whoever ends
it, with SIGKILL or by ending OWNER (a process number, 0 for none), ends all processes, mounts and disks of the host;
nothing is left for anybody to clean up.

PLAN is a file that says what the host is. SIGHUP makes it read the disks in there again; what it did is in the file
`applied` beside it. It uses the standard library alone and starts without site-packages, because it has to be quick.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# As shown by ps; a process of this name is ready, the one that starts it is not.
READY_NAME = "qm-lab"

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_NOSUID, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4096, 16384, 1 << 18
_MNT_DETACH = 2
# System calls that the C library knows only since 2022; their numbers are the same on every architecture.
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT = 428, 429
_AT_FDCWD, _AT_RECURSIVE, _OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = -100, 0x8000, 1, 4
_PR_SET_NAME = 15

_LOOP_CONFIGURE, _LOOP_SET_CAPACITY, _LOOP_CTL_GET_FREE = 0x4C0A, 0x4C07, 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_MAJOR = 7
_LOOP_NODES = 256
_LOOP_TRIES = 64
# loop_config: the file, the block size, and a loop_info64 of which only the flags are not zero.
_LOOP_CONFIG = "=II52xI176x64x"
_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of XFS and ext4: nothing more is written, every access is an error
_SHUTDOWN_WITHOUT_LOG = 2

_CONSOLES = re.compile(r"tty\w|vcs")

_libc = ctypes.CDLL(None, use_errno=True)


class SetupError(Exception):
    """The host cannot be made; the message says why."""


def call(what: str, result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    call("unshare", _libc.unshare(flags))


def mount(source: str, target: str, type: str = "", flags: int = 0, options: str = "") -> None:
    words = [word.encode() if word else None for word in (source, target, type)]
    call(f"mount {target}", _libc.mount(*words, ctypes.c_ulong(flags), options.encode() if options else None))


def detach(target: str) -> None:
    call(f"unmount {target}", _libc.umount2(target.encode(), _MNT_DETACH))


def set_name(name: str) -> None:
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def mount_table() -> list[tuple[str, str, str, str]]:
    """Number, target, type and source of each mount."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        target = fields[4].encode(errors="surrogateescape").decode("unicode_escape")
        found.append((fields[2], target, kind[0], kind[1]))
    return found


def drop_foreign_mounts() -> None:
    """A copy of the machine's mounts would keep disks, file system servers and namespaces of others busy."""
    for _, target, kind, source in reversed(mount_table()):
        foreign = source.startswith("/dev/loop") or kind.startswith("fuse") or kind == "nsfs"
        if foreign or target.startswith("/run/"):
            with contextlib.suppress(OSError):
                detach(target)


def mount_system() -> None:
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    drop_foreign_mounts()
    replace("proc", "/proc")
    # A sysfs shows the network of whoever mounted it.
    with kept("/sys/fs/cgroup"):
        replace("sysfs", "/sys")
    mount_devices()
    mount("tmpfs", "/mnt", "tmpfs", _MS_NOSUID, "mode=755")  # where people mount things; the machine's own stays away
    mount("tmpfs", "/run", "tmpfs", _MS_NOSUID, "mode=755")
    os.mkdir("/run/lock")
    os.chmod("/run/lock", 0o1777)


def replace(type: str, target: str, options: str = "") -> None:
    """Not over the old one, which would stay in the table of mounts."""
    if os.path.ismount(target):
        detach(target)
    mount(type, target, type, _MS_NOSUID, options)


@contextlib.contextmanager
def kept(path: str) -> Iterator[None]:
    """What is mounted there is mounted there again in the end."""
    mounted = os.path.ismount(path)
    if mounted:
        flags = ctypes.c_uint(_OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
        tree = _libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path.encode(), flags)
        call(f"take {path} along", min(tree, 0))
    yield
    if mounted:
        words = (tree, b"", _AT_FDCWD, path.encode(), ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH))
        call(f"mount {path} again", _libc.syscall(_SYS_MOVE_MOUNT, *words))
        os.close(tree)


def mount_devices() -> None:
    """A /dev without the machine's own disks: no mistake on a virtual host reaches one."""
    nodes = list(character_devices("/dev"))
    with kept("/dev/pts"):
        replace("tmpfs", "/dev", "mode=755")
        os.umask(0)
        for path, mode, number in nodes:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            os.mknod(path, mode, number)
        for number in range(_LOOP_NODES):
            make_loop_node(number)
        os.umask(0o022)
        for name in ("pts", "shm"):
            os.mkdir(f"/dev/{name}")
    mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID, "mode=1777")
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")


def character_devices(directory: str) -> Iterator[tuple[str, int, int]]:
    device = os.stat(directory).st_dev
    for entry in os.scandir(directory):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
            yield from character_devices(entry.path)
        elif stat.S_ISCHR(found.st_mode) and not _CONSOLES.match(entry.name):
            yield entry.path, found.st_mode, found.st_rdev


def make_loop_node(number: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mknod(f"/dev/loop{number}", stat.S_IFBLK | 0o660, os.makedev(_LOOP_MAJOR, number))


def mount_own(plan: dict[str, Any]) -> None:
    """What the host has for itself and keeps when it starts again."""
    for target, upper, work in plan["overlays"]:
        mount("overlay", target, "overlay", 0, f"lowerdir={target},upperdir={upper},workdir={work}")
    for source, target in plan["binds"]:
        if not os.path.exists(target):
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            else:
                Path(target).touch()
        mount(source, target, flags=_MS_BIND)


class Disk:
    """A loop device that is there for as long as this process, or somebody who uses it, has it open."""

    def __init__(self, name: str, file: str, description: dict[str, Any]) -> None:
        self.file = file
        self._link = f"/dev/{name}"
        self._backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._number, self._fd = attach_loop(self._backing)
        except OSError:
            os.close(self._backing)
            raise
        # The description first: a disk that appears has its identity from the start.
        Path(f"{self._link}.json").write_text(json.dumps(description))
        os.symlink(f"/dev/loop{self._number}", self._link)

    def lose(self) -> None:
        """As a disk that dies: gone from the host, and an error for whoever still uses it."""
        os.unlink(self._link)
        os.unlink(f"{self._link}.json")
        for number, target, _, _ in mount_table():
            if number == f"{_LOOP_MAJOR}:{self._number}":
                shut_down(target)
        # A shorter file alone would grow again by what is written to it; without capacity the kernel refuses access.
        os.ftruncate(self._backing, 0)
        fcntl.ioctl(self._fd, _LOOP_SET_CAPACITY)
        os.close(self._backing)
        os.close(self._fd)


def attach_loop(backing: int) -> tuple[int, int]:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_LOOP_TRIES):
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            make_loop_node(number)
            fd = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
            try:
                # In one step, so that no end of this process can leave the device attached.
                fcntl.ioctl(fd, _LOOP_CONFIGURE, struct.pack(_LOOP_CONFIG, backing, 0, _LO_FLAGS_AUTOCLEAR))
            except OSError as error:
                os.close(fd)
                if error.errno != errno.EBUSY:  # somebody else was quicker
                    raise
            else:
                return number, fd
    finally:
        os.close(control)
    raise SetupError("no loop device is free")


def shut_down(target: str) -> None:
    """Where the file system knows how; for the others the missing capacity has to do."""
    with contextlib.suppress(OSError):
        fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("=I", _SHUTDOWN_WITHOUT_LOG))
        finally:
            os.close(fd)


class Host:
    def __init__(self, plan_file: str) -> None:
        self._plan_file = Path(plan_file)
        self._disks: dict[str, Disk] = {}

    def start(self) -> None:
        plan = self._plan()
        mount_system()
        mount_own(plan)
        socket.sethostname(plan["name"])
        self._match_disks(plan)

    def refresh(self) -> None:
        revision, problem = "", ""
        try:
            plan = self._plan()
            revision = plan["revision"]
            self._match_disks(plan)
        except (OSError, ValueError, SetupError) as error:
            problem = str(error)
        applied = self._plan_file.with_name("applied")
        staged = applied.with_suffix(".new")
        staged.write_text(json.dumps({"revision": revision, "problem": problem}))
        staged.rename(applied)

    def _plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(self._plan_file.read_bytes())
        return plan

    def _match_disks(self, plan: dict[str, Any]) -> None:
        wanted = {disk["name"]: disk for disk in plan["disks"]}
        for name in list(self._disks):
            if name not in wanted or wanted[name]["file"] != self._disks[name].file:
                self._disks.pop(name).lose()
        for name, disk in wanted.items():
            if name not in self._disks:
                self._disks[name] = Disk(name, disk["file"], disk["description"])


def serve(owner: int | None, on_refresh: Callable[[], None]) -> None:
    """Until the owner ends: bury the dead, and refresh when asked to."""
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    selector = selectors.DefaultSelector()
    selector.register(waking, selectors.EVENT_READ)
    if owner is not None:
        selector.register(owner, selectors.EVENT_READ)
    while True:
        ready = [key.fd for key, _ in selector.select()]
        if owner in ready:
            return
        numbers = os.read(waking, 4096)
        if signal.SIGHUP in numbers:
            on_refresh()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def become_daemon() -> None:
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def keep(kind: str, plan_file: str, owner: int | None, report: int) -> None:
    """The child, which is the host; what it writes to `report` is why it could not be made."""
    try:
        become_daemon()
        host = Host(plan_file) if kind == "host" else None
        if host is not None:
            host.start()
        set_name(READY_NAME)
        os.write(report, b"ready")
    except (OSError, ValueError, SetupError) as error:
        with contextlib.suppress(BrokenPipeError):
            os.write(report, str(error).encode())
        return
    os.close(report)
    serve(owner, host.refresh if host is not None else lambda: None)


def main(kind: str, _lab: str, _name: str, plan_file: str, owner_pid: str) -> int:
    flags = _CLONE_NEWNET
    if kind == "host":
        flags |= _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID
    try:
        owner = os.pidfd_open(int(owner_pid)) if int(owner_pid) else None
        unshare(flags)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    answer, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answer)
        keep(kind, plan_file, owner, report)
        os._exit(0)
    os.close(report)
    said = b"".join(iter(lambda: os.read(answer, 4096), b""))
    if said == b"ready":
        sys.stdout.write(f"{child}\n")
        return 0
    sys.stderr.write(f"{said.decode(errors='replace') or 'it ended before it was ready'}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
