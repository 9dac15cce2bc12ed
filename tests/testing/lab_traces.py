"""What a lab could leave behind on the machine, told apart from what other programs do there at the same time."""

import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from quartermaster.testing.lab.state import LabState, read_state

KINDS = ("net", "mnt", "uts", "ipc", "pid")
SETTLE_S = 5.0


@dataclass(frozen=True)
class Traces:
    """By which everything of one lab is known."""

    directory: Path
    lab: str
    link: str
    hosts: frozenset[frozenset[str]]  # the namespaces of each

    def left(self) -> list[str]:
        return [*self.processes(), *self.mounts(), *self.loops(), *self.interfaces(), *self.namespace_holders()]

    def left_after_settling(self) -> list[str]:
        """The kernel takes namespaces away in its own time."""
        deadline = time.monotonic() + SETTLE_S
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def processes(self) -> list[str]:
        marked = (str(self.directory), self.lab)
        lines = {pid: content(f"/proc/{pid}/cmdline").replace("\0", " ") for pid in pids()}
        return [f"process {pid}: {line}" for pid, line in lines.items() if any(mark in line for mark in marked)]

    def mounts(self) -> list[str]:
        return [line for line in content("/proc/self/mountinfo").splitlines() if str(self.directory) in line]

    def loops(self) -> list[str]:
        files = {
            file.parts[3]: content(str(file)).strip() for file in Path("/sys/block").glob("loop*/loop/backing_file")
        }
        return [f"{device}: {file}" for device, file in files.items() if str(self.directory) in file]

    def interfaces(self) -> list[str]:
        return [name for name in os.listdir("/sys/class/net") if name == self.link]

    def namespace_holders(self) -> list[str]:
        """Who is in all namespaces of a host: the number of a single one, as the switch has it, may be given to
        somebody else by now, and those of a host to another lab.
        """
        inside = {pid: set(namespaces_of(pid)) for pid in pids()}
        others = [inside[pid] for pid in inside if self._is_of_another_lab(pid)]
        hosts = [host for host in self.hosts if len(host) > 1 and not any(host <= names for names in others)]
        return [f"{pid} is in {sorted(host)}" for pid, names in inside.items() for host in hosts if host <= names]

    def _is_of_another_lab(self, pid: int) -> bool:
        words = content(f"/proc/{pid}/cmdline").split("\0")
        return any(word.endswith("/lab/init.py") for word in words) and self.lab not in words


def traces_of(directory: Path) -> Traces:
    """Of a lab that is up, or as far as it got."""
    state: LabState = read_state(directory)
    ours = set(namespaces_of(os.getpid()))
    keepers = [pid for pid in pids() if state.id in content(f"/proc/{pid}/cmdline").split("\0")]
    found = {frozenset(namespaces_of(pid)) - ours for pid in keepers}
    return Traces(directory, state.id, state.link, frozenset(found - {frozenset()}))


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def namespaces_of(pid: int) -> list[str]:
    found = []
    for kind in KINDS:
        with suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def content(file: str) -> str:
    with suppress(OSError):
        return Path(file).read_text(errors="replace")
    return ""


def routes() -> str:
    return subprocess.run(["ip", "route"], capture_output=True, text=True, check=True, timeout=10).stdout
