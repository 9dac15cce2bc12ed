"""Is this host fit for what it is to do? What is found, and a chain of small rules that say what is wrong and the fix.

Looks only; nothing here changes the host. A port is tried by binding it for a moment.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from quartermaster.host.commands import Commands
from quartermaster.host.facts import Facts, gather_facts
from quartermaster.host.tools import Tool
from quartermaster.support import clock
from quartermaster.support.errors import HostError

_PIDFD_KERNEL = (5, 3)
_FILE_SYSTEMS = ("ext4", "xfs", "fuse")
_LITTLE_SPACE = 1 << 30
_NO_SPACE = 100 << 20
_LITTLE_MEMORY = 512 << 20
_EARLIEST_S = 1_700_000_000  # November 2023: a clock before that was never set
_TIME_ERROR = 5  # what adjtimex answers while nothing keeps the clock
_TIMEX_BYTES = 512  # more than any version of the struct has


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One line for a person: what was looked at, how it is, and what to do about it."""

    what: str
    state: State
    message: str
    fix: str = ""


class Probe(msgspec.Struct, frozen=True):
    """What was found."""

    facts: Facts | None  # None: it could not even be asked; `trouble` says why
    trouble: str
    file_systems: tuple[str, ...]  # of those that we may need, the ones that the kernel has or can load
    kept_time: bool | None  # whether something keeps the clock; None where the kernel does not say
    wall_s: float
    directory: str  # where state is kept
    free: int  # bytes there
    writable: bool
    ports: dict[int, str]  # why one cannot be listened on; "" where it can


async def probe_host(commands: Commands, directory: Path, ports: Sequence[int]) -> Probe:
    facts, trouble = None, ""
    try:
        facts = await gather_facts(commands)
    except HostError as error:
        trouble = str(error)
    above = _existing(directory)
    space = os.statvfs(above)
    return Probe(
        facts=facts,
        trouble=trouble,
        file_systems=tuple(name for name in _FILE_SYSTEMS if _kernel_knows(name)),
        kept_time=_time_is_kept(),
        wall_s=clock.wall_time(),
        directory=str(directory),
        free=space.f_bavail * space.f_frsize,
        writable=os.access(above, os.W_OK | os.X_OK),
        ports={port: _port_trouble(port) for port in ports},
    )


def judge_host(
    probe: Probe, *, tools: Mapping[str, Sequence[Tool]], needed: Sequence[str] = (), running: bool = False
) -> Iterator[Check]:
    """`tools` are the programs by who needs them, "" for every host; those of `needed` must be there.

    `running`: this host is up already, and the ports are its own.
    """
    if probe.facts is None:
        yield Check("host", State.FAIL, probe.trouble, "without it nothing else can be told")
        return
    yield _root(probe.facts)
    yield _kernel(probe.facts)
    yield _file_systems(probe)
    yield _memory(probe.facts)
    yield _daemons(probe.facts)
    yield _directory(probe)
    yield from _clock(probe)
    yield _addresses(probe.facts)
    for port, trouble in probe.ports.items():
        if trouble and not running:
            yield Check(f"port {port}", State.WARN, trouble, "stop who uses it, or let another host be the first")
        else:
            yield Check(f"port {port}", State.OK, "in use by this host" if trouble else "free")
    for who, wanted in tools.items():
        yield _programs(probe.facts, who, wanted, required=who == "" or who in needed)


def _root(facts: Facts) -> Check:
    if facts.root:
        return Check("root", State.OK, "runs as root")
    message = "not root: directories can be offered, disks cannot, and nothing can be mounted"
    return Check("root", State.WARN, message, "run it as root where disks are to be used")


def _kernel(facts: Facts) -> Check:
    numbers = tuple(int(part) for part in re.findall(r"\d+", facts.kernel)[:2])
    if numbers and numbers < _PIDFD_KERNEL:
        return Check("kernel", State.FAIL, f"{facts.kernel} cannot watch processes", "Linux 5.3 or later is needed")
    return Check("kernel", State.OK, f"{facts.kernel} on {facts.architecture}, {facts.distribution}")


def _file_systems(probe: Probe) -> Check:
    missing = [name for name in _FILE_SYSTEMS if name not in probe.file_systems]
    if missing:
        message = f"the kernel does not know {', '.join(missing)}"
        return Check("file systems", State.WARN, message, "load or install the modules if disks or FUSE are to be used")
    return Check("file systems", State.OK, ", ".join(probe.file_systems))


def _memory(facts: Facts) -> Check:
    text = f"{facts.memory / (1 << 30):.1f} GiB, {facts.cores} cores"
    if facts.memory < _LITTLE_MEMORY:
        return Check("memory", State.WARN, text, "512 MiB is the least for a host with etcd")
    return Check("memory", State.OK, text)


def _daemons(facts: Facts) -> Check:
    if facts.systemd:
        return Check("daemons", State.OK, "run as systemd units")
    return Check("daemons", State.OK, "run as detached processes: systemd is not PID 1")


def _directory(probe: Probe) -> Check:
    free = f"{probe.free / (1 << 30):.1f} GiB free in {probe.directory}"
    if not probe.writable:
        return Check("state", State.FAIL, f"{probe.directory} cannot be written", "run it as root, or set QM_STATE_DIR")
    if probe.free < _NO_SPACE:
        return Check("state", State.FAIL, free, "make room: a store that is full loses its cluster")
    if probe.free < _LITTLE_SPACE:
        return Check("state", State.WARN, free, "make room: at least 1 GiB is wise")
    return Check("state", State.OK, free)


def _clock(probe: Probe) -> Iterator[Check]:
    if probe.wall_s < _EARLIEST_S:
        yield Check("clock", State.FAIL, "it was never set", "certificates will not be valid: set it")
    if probe.kept_time is None:
        yield Check("time sync", State.WARN, "the kernel does not say whether the clock is kept", "install chrony")
    elif probe.kept_time:
        yield Check("time sync", State.OK, "the clock is kept")
    else:
        message = "nothing keeps the clock: logs and certificates of hosts will not agree"
        yield Check("time sync", State.WARN, message, "install chrony or enable systemd-timesyncd")


def _addresses(facts: Facts) -> Check:
    if facts.addresses:
        return Check("addresses", State.OK, ", ".join(facts.addresses))
    return Check("addresses", State.WARN, "none that another host could reach", "a host alone needs none")


def _programs(facts: Facts, who: str, wanted: Sequence[Tool], *, required: bool) -> Check:
    what = f"programs of {who}" if who else "programs"
    missing = [tool for tool in wanted if not facts.tools.get(tool.name)]
    if not missing:
        return Check(what, State.OK, f"{len(wanted)} of {len(wanted)} are there" if wanted else "none are needed")
    names = ", ".join(f"{tool.name} ({tool.purpose})" for tool in missing)
    packages = " ".join(dict.fromkeys(tool.package for tool in missing))
    # A host without root mounts nothing, so it can do without the programs for that.
    grave = required and (bool(who) or facts.root)
    return Check(what, State.FAIL if grave else State.WARN, f"missing: {names}", f"install the packages {packages}")


def _existing(directory: Path) -> Path:
    """The directory, or what it would be made in."""
    return next((one for one in (directory, *directory.parents) if one.is_dir()), Path("/"))


def _kernel_knows(name: str) -> bool:
    with suppress(OSError):
        if re.search(rf"\b{name}$", Path("/proc/filesystems").read_text(), re.MULTILINE):
            return True
    modules = Path("/lib/modules") / os.uname().release
    for index in ("modules.dep", "modules.builtin"):
        with suppress(OSError):
            if re.search(rf"/{name}\.ko", (modules / index).read_text()):
                return True
    return False


def _time_is_kept() -> bool | None:
    """As the kernel knows it, whoever keeps it: chrony, systemd-timesyncd, the hypervisor's agent."""
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if answer < 0 else answer != _TIME_ERROR


def _port_trouble(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens on it
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
    return ""
