"""The library's front door: volumes come to this host and go again, described by what their storage system says.

    async with open_connector() as connector:
        attachment = await connector.connect(info)     # a ConnectionInfo, or the map that its JSON is
        …                                              # attachment.path is a device or a directory
        await connector.disconnect(info)

Every call may be repeated, from any number of processes at once, and after any of them was killed. A program should
call `recover()` when it starts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from quartermaster.connectors.attaching import Attaching
from quartermaster.connectors.context import Machine
from quartermaster.connectors.driver import Foreign, Listing, Needing, Opening, Roots, Settings
from quartermaster.connectors.errors import RecordDamagedError, UnreachableError, UnsupportedDriverError
from quartermaster.connectors.files import HostFiles
from quartermaster.connectors.model import (
    Attachment,
    ConnectionInfo,
    ConnectorProperties,
    OsType,
    normal_type,
    platform_of,
)
from quartermaster.connectors.options import parse_options
from quartermaster.connectors.records import Record, State, sweep
from quartermaster.connectors.registry import (
    AnyDriver,
    blame,
    clients_of,
    find_driver,
    known_types,
    require_clients,
)
from quartermaster.connectors.secret import Secret
from quartermaster.host import procfs
from quartermaster.host.commands import Commands, HostCommands
from quartermaster.host.events import HostEvents
from quartermaster.host.locks import FileLocks
from quartermaster.host.places import state_directory
from quartermaster.support.errors import QuartermasterError, UsageError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

if TYPE_CHECKING:
    from quartermaster.connectors.using import Mounted, Statistics, Using
    from quartermaster.host.mounts import Mounts

T = TypeVar("T")

log = logger("connectors")

_AT_ONCE = 16  # volumes that are looked at or taken back: each may run programs


class Listed(msgspec.Struct, frozen=True, rename="camel"):
    """One of our attachments: as it was recorded, and whether it is here now. One that is here and has a `problem` is
    away: nobody answers behind it."""

    volume_id: str
    driver_volume_type: str
    state: str
    path: str = ""
    device: str = ""
    present: bool = False
    problem: str = ""


class Inventory(msgspec.Struct, frozen=True, rename="camel"):
    attachments: tuple[Listed, ...]
    foreign: tuple[Foreign, ...]


class Recovered(msgspec.Struct, frozen=True, rename="camel"):
    """What `recover` did about one volume. With a `problem`, something of it may still be here."""

    volume_id: str
    was: str
    problem: str = ""


class Connector:
    """Made by `open_connector`. One is enough for a program; it keeps nothing in memory between calls."""

    def __init__(self, machine: Machine, settings: Settings, *, os_type: OsType = OsType.LINUX) -> None:
        self._machine = machine
        self._settings = settings
        self._os_type = os_type
        self._attaching = Attaching(machine, settings, self._recorded)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        return None

    async def properties(
        self, *, multipath: bool | None = None, do_local_attach: bool | None = None
    ) -> ConnectorProperties:
        """What storage systems want to know about this host. Connecting does not need it first."""
        from quartermaster.connectors.properties import gather_properties

        settings = msgspec.structs.replace(
            self._settings,
            multipath=self._settings.multipath if multipath is None else _flag(multipath, "multipath"),
            do_local_attach=(
                self._settings.do_local_attach if do_local_attach is None else _flag(do_local_attach, "do_local_attach")
            ),
        )
        return await gather_properties(self._machine, settings, self._os_type)

    async def connect(self, info: ConnectionInfo | Mapping[str, Any], *, timeout_s: float | None = None) -> Attachment:
        """Bring the volume to this host. Said twice it is as once."""
        info = _info(info)
        volume_id, driver, data, place = self._read(info)
        if not self._settings.do_local_attach:
            if not isinstance(driver, Opening):
                kind = driver.route.driver_type
                raise UnsupportedDriverError(
                    f"cannot tell how a program opens the volume {volume_id} itself: {kind} has no URI",
                    hint="attach it to this host",
                )
            return Attachment(volume_id, driver.route.driver_type, path=driver.uri(data), uri=True)
        return await self._attaching.connect(volume_id, driver, data, place, timeout_s=self._seconds(timeout_s))

    async def disconnect(
        self, info: ConnectionInfo | Mapping[str, Any], *, force: bool = False, timeout_s: float | None = None
    ) -> str:
        """Take the volume away from this host, and return the path that is gone.

        A device that is in use is refused. `force` takes it away nevertheless, with what could not be written.
        """
        info = _info(info)
        volume_id, driver, _, place = self._read(info)
        return await self._attaching.disconnect(
            volume_id, driver, place, force=_flag(force, "force"), timeout_s=self._seconds(timeout_s)
        )

    async def device_path(self, volume_id: str, *, timeout_s: float | None = None) -> str:
        """Where the volume is, after a look whether it still is. NotAttachedError where it is not."""
        return (await self.find(volume_id, timeout_s=timeout_s)).path

    async def find(self, volume_id: str, *, timeout_s: float | None = None) -> Attachment:
        """As `device_path`, with all that is known of the attachment."""
        return await self._attaching.find(_volume(volume_id), timeout_s=self._seconds(timeout_s))

    async def extend(
        self,
        info: ConnectionInfo | Mapping[str, Any],
        *,
        mounted: str | os.PathLike[str] = "",
        timeout_s: float | None = None,
    ) -> int:
        """Make this host see a volume's new size, in bytes. The file system on the directory `mounted` grows too."""
        info = _info(info)
        volume_id, _, _, _ = self._read(info)
        timeout_s = self._seconds(timeout_s)
        size = await self._attaching.extend(volume_id, timeout_s=timeout_s)
        if mounted:
            await self._using().grow(volume_id, _absolute(mounted), timeout_s=timeout_s)
        return size

    async def mount(
        self,
        volume_id: str,
        target: str | os.PathLike[str],
        *,
        file_system: str = "",
        options: str | Sequence[str] = (),
        read_only: bool = False,
        key: Secret | str | bytes = "",
        overwrite_unknown: bool = False,
        timeout_s: float | None = None,
    ) -> Mounted:
        """Mount a connected volume on a directory; said twice it is as once, and a corrupted mount is made anew.

        A blank device gets the file system (ext4 unless another is named) and, with a `key`, is encrypted. A device
        with anything else on it is refused; `overwrite_unknown` gives up what no program recognises. A volume that is a
        file or directory itself is bound there. What was connected to be read is mounted to be read.
        """
        return await self._using().mount(
            _volume(volume_id),
            _directory(target),
            file_system=_text(file_system, "a file system"),
            options=_options(options),
            read_only=_flag(read_only, "read_only"),
            key=_secret(key),
            overwrite_unknown=_flag(overwrite_unknown, "overwrite_unknown"),
            timeout_s=self._seconds(timeout_s),
        )

    async def unmount(
        self, volume_id: str, target: str | os.PathLike[str], *, force: bool = False, timeout_s: float | None = None
    ) -> bool:
        """Whether something was mounted. `force` takes it away also where files are open or its server is dead."""
        return await self._using().unmount(
            _volume(volume_id), _directory(target), force=_flag(force, "force"), timeout_s=self._seconds(timeout_s)
        )

    async def statistics(
        self, volume_id: str, target: str | os.PathLike[str] = "", *, timeout_s: float | None = None
    ) -> Statistics:
        """How large and how full it is, where it is mounted on `target`; of a mere device, how large."""
        timeout_s = self._seconds(timeout_s)
        return await self._using().statistics(_volume(volume_id), target=_absolute(target), timeout_s=timeout_s)

    async def recover(self, *, timeout_s: float | None = None) -> tuple[Recovered, ...]:
        """Take back what processes that died have begun. One volume that resists does not hold up the others, and one
        that a process is at work on is none of them."""
        for each in ("attachments", "daemons/records"):
            sweep(self._machine.directory / each, self._machine.files)
        records = [each for each in self._attaching.records.all() if _is_to_recover(each)]
        done = await _of_each(records, self._recover, timeout_s=self._seconds(timeout_s))
        return tuple(one for each in done for one in each)

    async def list(self, *, foreign: bool = True, timeout_s: float | None = None) -> Inventory:
        """Our own attachments; and what else of the kind is on this host, marked as not ours."""
        timeout, foreign = self._seconds(timeout_s), _flag(foreign, "foreign")
        records = list(self._attaching.records.all())
        own = await _of_each(records, self._listed, timeout_s=timeout)
        if not foreign:
            return Inventory(tuple(own), ())
        known = [each for each in records if isinstance(each, Record)]
        taken = [word for each in known for word in (each.path, each.device, *each.claims)]
        return Inventory(tuple(own), await self._foreign(taken, timeout))

    async def _listed(self, record: Record | RecordDamagedError, timeout_s: float) -> Listed:
        if isinstance(record, RecordDamagedError):
            return Listed(record.volume_id, "", "damaged", problem=str(record))
        problem, present = "", record.state is State.CONNECTED
        try:
            if present:
                await self._attaching.find(record.volume_id, timeout_s=timeout_s)
        except QuartermasterError as error:
            problem, present = str(error), isinstance(error, UnreachableError)
        return Listed(
            volume_id=record.volume_id,
            driver_volume_type=record.driver,
            state=str(record.state),
            path=record.path,
            device=record.device,
            present=present,
            problem=problem,
        )

    async def _foreign(self, taken: Sequence[str], timeout_s: float) -> tuple[Foreign, ...]:
        found: list[Foreign] = []
        blank = Record("", "", "", State.CONNECTED, {}, self._machine.boot)
        for each in known_types():
            try:
                driver = find_driver(each, platform=self._machine.platform, os_type=self._os_type)
            except UnsupportedDriverError:
                continue
            if isinstance(driver, Listing):
                found += await driver.foreign(self._attaching.context(blank, timeout_s=timeout_s))
        return tuple(one for one in dict.fromkeys(found) if not {*taken} & _words_for(one))

    async def _recover(self, record: Record | RecordDamagedError, timeout_s: float) -> Sequence[Recovered]:
        if isinstance(record, RecordDamagedError):
            return [Recovered(record.volume_id, "damaged", str(record))]
        try:
            done = await self._attaching.recover(record.volume_id, timeout_s=timeout_s)
        except QuartermasterError as error:
            return [Recovered(record.volume_id, str(record.state), str(error))]
        except Exception as error:
            log.exception("a volume cannot be recovered", volume=record.volume_id)
            return [Recovered(record.volume_id, str(record.state), f"{type(error).__name__}: {error}")]
        return [Recovered(record.volume_id, str(record.state))] if done else []

    def _read(self, info: ConnectionInfo) -> tuple[str, AnyDriver, msgspec.Struct, msgspec.Struct]:
        # Imported here: a program that only looks what is attached does without them.
        from quartermaster.connectors.payload import decode
        from quartermaster.connectors.volumes import volume_id_of

        driver = self._driver(info.driver_type, self._settings.clients.get(info.driver_type, ""))
        route = driver.route
        beside = info.mistyped_ids()
        try:
            data = decode(route.data, info.data, driver=route.driver_type, aliases=route.aliases, beside=beside)
            place = driver.identify(data, self._settings)
            return volume_id_of(info, place), driver, data, place
        except Exception as error:
            blame(driver, "tell which volume is meant", error)
            raise

    def _seconds(self, timeout_s: float | None) -> float:
        return self._settings.timeout_s if timeout_s is None else _require_seconds(timeout_s)

    def _using(self) -> Using:
        # Imported here: a program that only connects does without it.
        from quartermaster.connectors.using import Using

        return Using(self._attaching)

    def _recorded(self, record: Record) -> AnyDriver:
        try:
            return self._driver(record.driver, record.client)
        except UnsupportedDriverError as error:
            raise UnsupportedDriverError(
                f"cannot take care of the volume {record.volume_id}, which is attached here: {error.message}",
                hint="install the package again from which its driver came",
            ) from error

    def _driver(self, type: str, client: str) -> AnyDriver:
        """The chosen client, else the first that this host's kernel can serve."""
        first = find_driver(type, platform=self._machine.platform, os_type=self._os_type, client=client)
        if client or self._serves(first):
            return first
        others = (find_driver(type, platform=self._machine.platform, client=each) for each in clients_of(type)[1:])
        return next((driver for driver in others if self._serves(driver)), first)

    def _serves(self, driver: AnyDriver) -> bool:
        return not isinstance(driver, Needing) or driver.usable(self._machine.roots, self._machine.files)


def open_connector(
    *,
    multipath: bool = False,
    do_local_attach: bool = True,
    clients: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    mount_directory: str | os.PathLike[str] | None = None,
    host: str = "",
    ip: str = "",
    initiator: str = "",
    timeout_s: float = 120.0,
    roots: Roots | None = None,
    search_path: str = "",
    machine: str = "",
    os_type: OsType | str = OsType.LINUX,
) -> Connector:
    """A connector for this host.

    `clients` chooses a route per driver type, as in {"ISCSI": "userspace"}. `directory` keeps the records and locks,
    and all programs of a host must use the same; `mount_directory` is where file systems are mounted. `roots`,
    `search_path` and `machine` (as `uname -m` says) are for tests.
    """
    chosen = _clients(clients)
    require_clients(chosen)
    # Not by the directory of whoever calls: the next one has another.
    own = Path(_absolute(directory)) if directory else state_directory() / "connectors"
    roots = roots or Roots()
    settings = Settings(
        multipath=_flag(multipath, "multipath"),
        do_local_attach=_flag(do_local_attach, "do_local_attach"),
        clients=chosen,
        mount_directory=Path(_absolute(mount_directory)) if mount_directory else own / "mounts",
        host=_text(host, "the name of a host"),
        ip=_text(ip, "an address"),
        initiator=_text(initiator, "the name of an initiator"),
        timeout_s=_require_seconds(timeout_s),
    )
    parts = Machine(
        commands=HostCommands(search_path=search_path),
        mounts=lambda commands: _mounts(commands, roots.proc / "self/mountinfo"),
        events=HostEvents(poll_s=1.0, subsystems=("block", "scsi", "nvme", "bdi")),
        locks=FileLocks(own / "locks"),
        files=HostFiles(),
        roots=roots,
        platform=platform_of(machine or os.uname().machine),
        boot=procfs.boot_id(),
        directory=own,
    )
    return Connector(parts, settings, os_type=_os_type(os_type))


async def _of_each(
    records: Sequence[Record | RecordDamagedError],
    work: Callable[[Record | RecordDamagedError, float], Awaitable[T]],
    *,
    timeout_s: float,
) -> Sequence[T]:
    """The work on each of them, a few at once, in the time that is for all: whoever comes later has its share of it,
    however long the first ones hang."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    waiting = len(records)
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(record: Record | RecordDamagedError) -> T:
        nonlocal waiting
        async with room:
            rounds = -(-waiting // _AT_ONCE)
            waiting -= 1
            return await work(record, max(0.0, ends - loop.time()) / rounds)

    async with TaskGroup() as group:
        tasks = [group.start(one(record)) for record in records]
    return [task.result() for task in tasks]


def _is_to_recover(record: Record | RecordDamagedError) -> bool:
    return isinstance(record, RecordDamagedError) or record.state is not State.CONNECTED


def _mounts(commands: Commands, mountinfo: Path) -> Mounts:
    # Imported here: a program that attaches devices mounts nothing.
    from quartermaster.host.mounts import HostMounts

    return HostMounts(commands, mountinfo=mountinfo)


def _require_seconds(timeout_s: float) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise UsageError(f"cannot wait {timeout_s!r}: it is no number of seconds above 0", hint="for example 120.0")
    return timeout_s


def _absolute(target: str | os.PathLike[str]) -> str:
    """Not by the directory of whoever calls."""
    try:
        text = os.fsdecode(target)
    except TypeError:
        raise _mistyped(target, "a path", "text or a pathlib.Path") from None
    if "\0" in text:
        raise UsageError("cannot use a path that has a NUL character in it", hint="leave it out")
    return os.path.abspath(text) if text else ""


def _directory(target: str | os.PathLike[str]) -> str:
    """Nobody means the directory that he is in by saying nothing."""
    found = _absolute(target)
    if not found:
        raise UsageError("cannot mount or unmount without a directory", hint='for example "/srv/data"')
    return found


def _volume(volume_id: str) -> str:
    if not volume_id:
        raise UsageError("cannot look for a volume without its id", hint="it is volumeId of what was connected")
    return _text(volume_id, "the id of a volume")


def _text(value: str, what: str) -> str:
    if not isinstance(value, str):
        raise _mistyped(value, what, "text")
    return value


def _flag(value: bool, name: str) -> bool:
    """Nobody who says "no" means yes."""
    if not isinstance(value, bool):
        raise _mistyped(value, name, "True or False")
    return value


def _options(options: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(options, str) or (isinstance(options, Sequence) and all(isinstance(one, str) for one in options)):
        return parse_options(options)
    raise _mistyped(options, "mount options", 'text or a list of it, for example "noatime"')


def _clients(clients: Mapping[str, str] | None) -> dict[str, str]:
    given = {} if clients is None else clients
    if isinstance(given, Mapping) and all(isinstance(word, str) for pair in given.items() for word in pair):
        return {normal_type(name): client for name, client in given.items()}
    raise _mistyped(given, "clients", 'a map from types to clients, for example {"ISCSI": "userspace"}')


def _os_type(value: OsType | str) -> OsType:
    try:
        return OsType(value)
    except ValueError:
        raise UsageError(f"cannot use {value!r} as an OS type", hint=f"it is one of {', '.join(OsType)}") from None


def _mistyped(value: object, what: str, wanted: str) -> UsageError:
    """By its type alone: the value may be a secret that stands in the wrong place."""
    return UsageError(f"cannot use a value of the type {type(value).__name__} as {what}", hint=f"it has to be {wanted}")


def _secret(key: Secret | str | bytes) -> Secret:
    if isinstance(key, Secret):
        return key
    if not isinstance(key, str | bytes):
        raise _mistyped(key, "a key", "text or bytes")
    # Whatever bytes a key has come out of the text again.
    return Secret(key.decode(errors="surrogateescape") if isinstance(key, bytes) else key)


def _words_for(one: Foreign) -> set[str]:
    """How a record would name it: as a path or device, or as a shared thing."""
    return {one.path, f"{one.kind} {one.path}", f"{one.kind} {one.name}"} - {""}


def _info(given: ConnectionInfo | Mapping[str, Any]) -> ConnectionInfo:
    return given if isinstance(given, ConnectionInfo) else ConnectionInfo.from_map(given)
