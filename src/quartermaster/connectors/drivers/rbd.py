"""Images of Ceph's RBD: what their data mean, and the kernel's own client.

Which image a device is, the kernel says in sysfs: cluster, pool, namespace, image and snapshot. An image of the same
name in another pool or cluster is another volume. All that we know of a cluster beforehand are its monitors' addresses:
those are compared until its fsid is known from the device itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import KERNEL, Foreign, Found, Roots, Route, Settings
from quartermaster.connectors.drivers.modules import kernel_has
from quartermaster.connectors.errors import AuthenticationError, ConnectorError, NotAnsweringError, VolumeBusyError
from quartermaster.connectors.files import Files
from quartermaster.connectors.identity import read_identity
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import AccessMode, DriverType
from quartermaster.connectors.names import file_name
from quartermaster.connectors.nodes import find_node, join_node, leave_node
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.userspace import ExportedPlace
from quartermaster.host.commands import Command
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError, DeadlineError

register(
    Tool("rbd", "ceph-common", "maps images of Ceph with the kernel's client"),
    Tool("getent", "libc-bin", "finds the addresses of monitors"),
)

_ALIASES = {
    "monitors": "hosts",
    "mon_hosts": "hosts",
    "mon_ports": "ports",
    "user": "auth_username",
    "secret": "keyring",
}
_PORT, _NEW_PORT = 6789, 3300
_KEY = re.compile(r"^\s*key\s*=\s*(\S+)", re.MULTILINE)
_ADDRESS = re.compile(r"^[0-9.]+$|:")
_MONITORS = "monitors"
_BUSY = 16


class RbdConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`name` is POOL/IMAGE or POOL/NAMESPACE/IMAGE, with @SNAPSHOT behind it where one is meant."""

    name: str
    hosts: str | tuple[str, ...]
    ports: str | tuple[int, ...] | int = ()
    auth_username: str = ""
    cluster_name: str = "ceph"
    keyring: Secret = Secret()  # its text, or the bare key; that of the host where there is none
    access_mode: AccessMode = AccessMode.READ_WRITE
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        parts = self.name.partition("@")[0].split("/")
        if not 2 <= len(parts) <= 3 or not all(parts):
            wrong.add("name", f'"{self.name}" is not POOL/IMAGE or POOL/NAMESPACE/IMAGE', 'for example "rbd/disk"')
        if "@" in self.name and not self.name.partition("@")[2]:
            wrong.add("name", f'"{self.name}" has an @ and no snapshot behind it', "name it, or leave the @ out")
        hosts, ports = _words(self.hosts), _words(self.ports)
        if not hosts:
            wrong.add("hosts", "names no monitor", 'for example ["192.0.2.1"]')
        elif ports and len(ports) != len(hosts):
            wrong.add(
                "ports", f"has {len(ports)} entries for {len(hosts)} hosts", "give one for each", unless=["hosts"]
            )
        if any(not port.isdecimal() or not 0 < int(port) < 65536 for port in ports):
            wrong.add("ports", "has an entry that is no port number", "for example 6789")
        wrong.tell()

    @property
    def user(self) -> str:
        return self.auth_username or "admin"


class Monitor(msgspec.Struct, frozen=True, order=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RbdPlace(ExportedPlace, frozen=True):
    monitors: tuple[Monitor, ...]
    pool: str
    namespace: str
    image: str
    snapshot: str = ""

    @property
    def specification(self) -> str:
        inside = "/".join(part for part in (self.pool, self.namespace, self.image) if part)
        return f"{inside}@{self.snapshot}" if self.snapshot else inside

    @property
    def name(self) -> str:
        """In sentences."""
        return f"the image {self.specification} of {', '.join(map(str, self.monitors))}"

    @property
    def thing(self) -> str:
        return f"rbd {self.specification} of {','.join(map(str, self.monitors))}"

    @property
    def words(self) -> tuple[str, ...]:
        """As the image is named in an argument list."""
        given = {"--pool": self.pool, "--namespace": self.namespace, "--image": self.image, "--snap": self.snapshot}
        return tuple(word for name, value in given.items() if value for word in (name, value))


def place_of(data: RbdConnectionData) -> RbdPlace:
    whole, _, snapshot = data.name.partition("@")
    pool, *namespace, image = whole.split("/")
    hosts = _words(data.hosts)
    ports = _words(data.ports) or [""] * len(hosts)
    monitors = {_monitor(host, port): None for host, port in zip(hosts, ports, strict=True)}
    read_only = data.access_mode is AccessMode.READ or bool(snapshot)
    return RbdPlace(tuple(sorted(monitors)), pool, "".join(namespace), image, snapshot, read_only=read_only)


def route_of(client: str) -> Route:
    return Route(DriverType.RBD, RbdConnectionData, RbdPlace, client=client, aliases=_ALIASES)


def uri_of(data: RbdConnectionData) -> str:
    """As librbd's own tools and qemu write it."""
    place = place_of(data)
    monitors = "\\;".join(str(monitor).replace(":", "\\:") for monitor in place.monitors)
    return f"rbd:{place.specification}:id={data.user}:mon_host={monitors}"


def key_of(context: Context, data: RbdConnectionData) -> Secret:
    """The bare key of the user: from the data, else from the host's own keyring; empty where neither has one."""
    text = data.keyring.reveal() or context.files.text(host_keyring(context, data))
    found = _KEY.search(text)
    key = found[1] if found else text.strip()
    context.hide(key)
    return Secret(key)


def host_keyring(context: Context, data: RbdConnectionData) -> Path:
    return context.roots.etc / "ceph" / f"{data.cluster_name}.client.{data.user}.keyring"


def access(context: Context, data: RbdConnectionData, place: RbdPlace) -> tuple[str, ...]:
    """The arguments by which a program of Ceph reaches the cluster. `put_keyring` has to be called before it runs."""
    keyring = keyring_file(context) if data.keyring else host_keyring(context, data)
    named = bool(data.keyring) or context.files.exists(keyring)
    return (
        *(("--cluster", data.cluster_name) if data.cluster_name != "ceph" else ()),
        *("--id", data.user, "--mon_host", ",".join(map(str, place.monitors))),
        *(("--keyring", str(keyring)) if named else ()),
    )


def put_keyring(context: Context, data: RbdConnectionData) -> None:
    """Gone again when the image is attached: whoever reads it does so once."""
    if data.keyring:
        text = f"[client.{data.user}]\n\tkey = {key_of(context, data).reveal()}\n"
        context.files.write(keyring_file(context), text.encode())


def drop_keyring(context: Context) -> None:
    context.files.remove(keyring_file(context))


def keyring_file(context: Context) -> Path:
    return context.directory / "secrets" / file_name(context.volume_id)


class RbdKernelDriver:
    route = route_of(KERNEL)

    def identify(self, data: RbdConnectionData, settings: Settings) -> RbdPlace:  # noqa: ARG002
        return place_of(data)

    def usable(self, roots: Roots, files: Files) -> bool:
        return kernel_has("rbd", roots.sysfs / "bus/rbd", roots, files)

    async def attach(self, context: Context, data: RbdConnectionData, place: RbdPlace) -> Found:
        known = await _addresses(context, place)
        # Before anything is mapped: by these the device is found again, whatever happens to us.
        context.note(**{_MONITORS: ",".join(known)})
        try:
            return await join_node(
                context,
                place.thing,
                lambda: _mapped(context, place, known),
                lambda: _map(context, data, place),
                directory=context.roots.dev,
                hint="look at what the kernel says, by `dmesg`",
            )
        finally:
            drop_keyring(context)

    async def find(self, context: Context, place: RbdPlace) -> Found | None:
        return find_node(context, place.thing, lambda: _mapped(context, place, _noted(context, place)))

    async def detach(self, context: Context, place: RbdPlace, *, force: bool) -> None:
        drop_keyring(context)
        known = _noted(context, place) if context.notes.get(_MONITORS) else await _addresses(context, place)

        def look() -> str:
            return _mapped(context, place, known)

        await leave_node(
            context,
            place.thing,
            look,
            lambda: _unmap(context, look(), force=force),
            directory=context.roots.dev,
            force=force,
        )

    async def extend(self, context: Context, place: RbdPlace) -> None:
        """The kernel hears of it by itself, some time; this makes it look now."""
        device = Path(_mapped(context, place, _noted(context, place)))
        path = context.roots.sysfs / "class/block" / device.name / "device/refresh"
        await context.write_attribute(path, "1", verb=f"look at the size of {device} again")

    def uri(self, data: RbdConnectionData) -> str:
        return uri_of(data)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return [
            Foreign(self.route.driver_type, "device", read_identity(device, context.roots, context.files), device)
            for device in _devices(context)
        ]


async def _map(context: Context, data: RbdConnectionData, place: RbdPlace) -> None:
    put_keyring(context, data)
    # We wait for the node ourselves, and udev does not run everywhere.
    options = ["noudev"]
    if all(monitor.port == _NEW_PORT for monitor in place.monitors):
        options.append("ms_mode=prefer-crc")
    argv = ("rbd", "device", "map", *access(context, data, place), *place.words)
    argv += (*(("--read-only",) if place.read_only else ()), "--options", ",".join(options))
    try:
        await context.commands.run(Command(argv, verb=f"map the image {place.specification}", timeout_s=120.0))
    except CommandError as error:
        raise _explained(place, error) from error


async def _unmap(context: Context, device: str, *, force: bool) -> None:
    if not device:
        return
    options = "noudev,force" if force else "noudev"
    argv = ("rbd", "device", "unmap", "--options", options, device)
    try:
        await context.commands.run(Command(argv, verb=f"unmap {device}", timeout_s=60.0))
    except CommandError as error:
        if error.exit_code != _BUSY:
            raise
        raise VolumeBusyError(
            f"cannot unmap {device}: it is in use", hint=f"`fuser -v {device}` names the processes that have it open"
        ) from error


def _explained(place: RbdPlace, error: CommandError) -> ConnectorError | CommandError:
    if isinstance(error, DeadlineError):
        return NotAnsweringError(
            f"cannot map {place.name}: the cluster did not answer in time",
            hint="look whether its monitors and OSDs are up and reached from here",
        )
    if "failed to load rbd kernel module" in error.stderr:
        return ConnectorError(
            f"cannot map the image {place.specification}: this kernel has no RBD",
            hint='choose another client, for example clients={"RBD": "userspace"}',
        )
    if "Operation not permitted" in error.stderr or "Permission denied" in error.stderr:
        return AuthenticationError(
            f"cannot map the image {place.specification}: the cluster refuses the user",
            hint="look whether the user, its key and its rights on the pool are right",
        )
    return error


def _mapped(context: Context, place: RbdPlace, known: Sequence[str]) -> str:
    """The device of the image, with its node; empty without one."""
    return next((device for device in _devices(context) if _is_place(context, device, place, known)), "")


def _devices(context: Context) -> list[str]:
    directory = context.roots.sysfs / "class/block"
    names = [name for name in context.files.names(directory) if re.fullmatch(r"rbd\d+", name)]
    return [str(context.roots.dev / name) for name in names if context.files.exists(context.roots.dev / name)]


def _is_place(context: Context, device: str, place: RbdPlace, known: Sequence[str]) -> bool:
    directory = context.roots.sysfs / "class/block" / Path(device).name / "device"

    def said(name: str) -> str:
        return context.files.text(directory / name)

    snapshot = said("current_snap")
    found = (said("pool"), said("pool_ns"), said("name"), "" if snapshot == "-" else snapshot)
    if found != (place.pool, place.namespace, place.image, place.snapshot):
        return False
    if context.identity:
        return context.identity == read_identity(device, context.roots, context.files)
    # The string by which it was mapped begins with the monitors.
    monitors = said("config_info").partition(" ")[0].split(",")
    return any(monitor in known for monitor in monitors)


def _noted(context: Context, place: RbdPlace) -> list[str]:
    noted = context.notes.get(_MONITORS, "")
    return noted.split(",") if noted else [str(monitor) for monitor in place.monitors]


async def _addresses(context: Context, place: RbdPlace) -> list[str]:
    """Of the monitors, as the kernel knows them: without names."""
    found: dict[str, None] = {}
    for monitor in place.monitors:
        hosts = [monitor.host]
        if not _ADDRESS.search(monitor.host):
            command = Command(
                ("getent", "ahosts", monitor.host), verb=f"find the address of {monitor.host}", changes=False
            )
            lines = (await context.commands.run(command)).text.splitlines()
            hosts = [line.split()[0] for line in lines if line.strip()]
        found |= {str(Monitor(host, monitor.port)): None for host in hosts}
    return list(found)


def _monitor(host: str, port: str) -> Monitor:
    """A port may stand behind the address too."""
    if host.startswith("["):
        inner, _, behind = host[1:].partition("]")
        return Monitor(inner, int(behind.removeprefix(":") or port or _PORT))
    name, colon, behind = host.rpartition(":")
    if colon and behind.isdecimal() and ":" not in name:
        return Monitor(name, int(behind))
    return Monitor(host, int(port or _PORT))


def _words(value: str | int | tuple[str, ...] | tuple[int, ...]) -> list[str]:
    each = value.split(",") if isinstance(value, str) else [str(value)] if isinstance(value, int) else map(str, value)
    return [word.strip() for word in each if word.strip()]


KERNEL_CLIENT = RbdKernelDriver()
