"""What a lab is, as it stands in its directory: written before anything is done, read by whoever comes next.

It says what there is to be. What there is at the moment is asked of the kernel: a host is up when its first process
lives, so there is no record of process numbers that could be wrong.
"""

from __future__ import annotations

import re
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from string import ascii_lowercase

import msgspec

from quartermaster.host.devices.roots import StandIn
from quartermaster.host.files import write_whole
from quartermaster.support.errors import InvalidError, QuartermasterError

STATE_FILE = "lab.json"
HOSTS = "hosts"  # the directory with one for each
MOST_HOSTS = 250
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?$")
# Covered on a virtual host by something of its own.
_COVERED = ("/dev", "/etc", "/proc", "/run", "/sys", "/var/lib", "/var/log")
# What the options of an overlay mount give a meaning to.
_AWKWARD = frozenset(':,\\"')


class LabError(QuartermasterError):
    """Something about virtual hosts cannot be done."""

    reason = "Lab"


class DiskState(msgspec.Struct, frozen=True):
    name: str  # as in /dev, for example vdb
    number: int
    size: int
    stand_in: StandIn
    lost: bool = False


class HostState(msgspec.Struct, frozen=True):
    name: str
    number: int
    disks: tuple[DiskState, ...] = ()
    disks_made: int = 0  # serial numbers are never used twice
    cut: bool = False

    def disk(self, which: int | str) -> DiskState:
        """By its name in /dev, or by its place, beginning with 0."""
        found = {disk.name: disk for disk in self.disks}
        name = list(found)[which] if isinstance(which, int) and 0 <= which < len(found) else str(which)
        if name not in found:
            known = ", ".join(found) or "none"
            raise LabError(f'cannot find the disk "{which}" of {self.name}', hint=f"it has {known}")
        return found[name]

    def with_disk(self, changed: DiskState) -> HostState:
        others = {disk.name: disk for disk in self.disks}
        return msgspec.structs.replace(self, disks=tuple({**others, changed.name: changed}.values()))


class Owner(msgspec.Struct, frozen=True):
    """The process with which a lab ends; number 0 for one that stays."""

    pid: int = 0
    started: int = 0


class LabState(msgspec.Struct, frozen=True):
    id: str
    name: str
    subnet: str = ""
    owner: Owner = Owner()
    hosts: tuple[HostState, ...] = ()
    hosts_made: int = 0  # nor are addresses

    @property
    def link(self) -> str:
        """The machine's own interface in the lab's network."""
        return f"qm-{self.id}"

    @property
    def machine_address(self) -> str:
        return str(IPv4Network(self.subnet)[-2])

    def address(self, host: HostState) -> str:
        return str(IPv4Network(self.subnet)[host.number])

    def host(self, name: str) -> HostState:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts) or "none"
        raise LabError(f'cannot find the host "{name}" in the lab {self.name}', hint=f"there are: {known}")

    def with_host(self, changed: HostState) -> LabState:
        others = {host.name: host for host in self.hosts}
        return msgspec.structs.replace(self, hosts=tuple({**others, changed.name: changed}.values()))

    def without_host(self, name: str) -> LabState:
        return msgspec.structs.replace(self, hosts=tuple(host for host in self.hosts if host.name != name))


def read_state(directory: Path) -> LabState:
    file = directory / STATE_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=LabState)
    except FileNotFoundError:
        raise LabError(f"cannot find a lab in {directory}", hint="`qm lab up` makes one") from None
    except msgspec.MsgspecError as error:
        raise LabError(f"cannot read the lab in {directory}: {file.name} is damaged: {error}") from error


def write_state(directory: Path, state: LabState) -> None:
    write_whole(directory / STATE_FILE, msgspec.json.format(msgspec.json.encode(state)), mode=0o644)


def new_disk(host: HostState, size: int, stand_in: StandIn, *, lab: str, name: str = "") -> tuple[HostState, DiskState]:
    """A disk that the host does not have yet, with a serial number and a name where it was given none.

    Serial numbers are easy to read and the same in every lab. What makes the disk itself one of its kind, as it is for
    real ones, is its WWN: the kernel does not mount two file systems that were made for one disk.
    """
    made = host.disks_made + 1
    if not stand_in.serial:
        number = sha256(f"{lab}/{host.number}/{made}".encode()).hexdigest()[:15]
        serial = f"{host.name.upper()}-{made:04}"
        stand_in = msgspec.structs.replace(stand_in, serial=serial, wwn=stand_in.wwn or f"naa.5{number}")
    taken = {disk.name for disk in host.disks}
    free = (letter for letter in ascii_lowercase[1:] if f"vd{letter}" not in taken)
    name = name or f"vd{next(free, '')}"
    if name == "vd":
        raise LabError(f"cannot add a disk to {host.name}: it has {len(taken)} already")
    disk = DiskState(name, made, size, stand_in)
    return msgspec.structs.replace(host, disks_made=made).with_disk(disk), disk


def new_host(state: LabState, name: str) -> tuple[LabState, HostState]:
    number = state.hosts_made + 1
    name = name or f"h{number}"
    refuse_name(name, "host")
    if any(host.name == name for host in state.hosts):
        raise LabError(f'cannot add the host "{name}": there is one of that name')
    if number > MOST_HOSTS:
        raise LabError(
            f"cannot add a host: the lab {state.name} has had {MOST_HOSTS}, and addresses are not used again"
        )
    host = HostState(name, number)
    return msgspec.structs.replace(state, hosts_made=number).with_host(host), host


def refuse_name(name: str, what: str) -> None:
    if not _NAME.match(name):
        raise InvalidError(f'cannot name a {what} "{name}": use up to 30 lower-case letters, digits and "-"')


def refuse_directory(directory: Path) -> None:
    hidden = [covered for covered in _COVERED if directory.is_relative_to(covered)]
    if hidden:
        raise LabError(
            f"cannot keep a lab in {directory}: virtual hosts have a {hidden[0]} of their own",
            hint="choose another directory",
        )
    if _AWKWARD.intersection(str(directory)):
        raise LabError(f'cannot keep a lab in {directory}: its name has one of the characters : , \\ "')


def mac_address(state: LabState, host: HostState) -> str:
    """The same after every start, so that the others need not learn it anew."""
    return "02:71:" + IPv4Address(state.address(host)).packed.hex(":")
