"""What the first process of a virtual host is told: which directories and disks are its own.

On a host `/etc`, `/var/lib` and `/var/log` are the machine's with the host's own changes over them; `/run` and
`/dev/shm` are empty at every start; `/dev` has no disks but the host's own; the rest is the machine's.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quartermaster.host.devices.roots import StandIn
from quartermaster.host.files import write_whole
from quartermaster.support import entropy
from quartermaster.testing.lab.disks import disk_file
from quartermaster.testing.lab.state import HostState, LabState

DEVICE_ROOT = Path("/dev")
STATE_DIRECTORY = Path("/var/lib/quartermaster")
HOME_DIRECTORY = Path("/var/lib/home")
HOSTS_FILE = "etc-hosts"
_OVERLAYS = {"/etc": "etc", "/var/lib": "var-lib", "/var/log": "var-log"}
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class PlannedDisk(msgspec.Struct, frozen=True):
    name: str
    file: str
    description: StandIn


class HostPlan(msgspec.Struct, frozen=True):
    revision: str
    name: str
    overlays: tuple[tuple[str, str, str], ...]  # what is covered, with what is written to it, and room for the kernel
    binds: tuple[tuple[str, str], ...]
    disks: tuple[PlannedDisk, ...]


class Applied(msgspec.Struct, frozen=True):
    """The answer of the first process."""

    revision: str
    problem: str = ""


def plan_of(host: HostState, directory: Path, lab_directory: Path) -> HostPlan:
    disks = [disk for disk in host.disks if not disk.lost]
    return HostPlan(
        revision=entropy.name_suffix(10),
        name=host.name,
        overlays=tuple(
            (target, str(directory / name / "upper"), str(directory / name / "work"))
            for target, name in _OVERLAYS.items()
        ),
        binds=(
            (str(directory / "state"), str(STATE_DIRECTORY)),
            (str(directory / "home"), str(HOME_DIRECTORY)),
            (str(directory / "boot_id"), _BOOT_ID),
            (str(lab_directory / HOSTS_FILE), "/etc/hosts"),
        ),
        disks=tuple(PlannedDisk(disk.name, str(disk_file(directory, disk)), disk.stand_in) for disk in disks),
    )


def prepare_directory(host: HostState, directory: Path) -> None:
    """What is to be there before a start. The files in /etc belong to the host from its first start on."""
    for name in _OVERLAYS.values():
        for part in ("upper", "work"):
            (directory / name / part).mkdir(parents=True, exist_ok=True)
    for name in ("home", "logs", "state"):
        (directory / name).mkdir(exist_ok=True)
    (directory / "boot_id").write_text(f"{entropy.new_uid()}\n")
    etc = directory / _OVERLAYS["/etc"] / "upper"
    for file, text in (("hostname", host.name), ("machine-id", entropy.new_uid().replace("-", ""))):
        if not (etc / file).exists():
            (etc / file).write_text(f"{text}\n")


def write_plan(plan: HostPlan, file: Path) -> None:
    write_whole(file, msgspec.json.encode(plan))


def write_hosts_file(state: LabState, directory: Path) -> None:
    """Where it is, and not anew: the hosts have this very file mounted."""
    lines = ["127.0.0.1 localhost", f"{state.machine_address} machine"]
    lines += [f"{state.address(host)} {host.name}" for host in state.hosts]
    (directory / HOSTS_FILE).write_text("".join(f"{line}\n" for line in lines))
