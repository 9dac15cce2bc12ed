"""The library's front door: volumes come to this host and go again, described by what their storage system says.

    async with open_connector() as connector:
        attachment = await connector.connect(info)     # a ConnectionInfo, or the map that its JSON is
        …                                              # attachment.path is a device or a directory
        await connector.disconnect(info)

Every call may be repeated, from any number of processes at once, and after any of them was killed. A program should
call `recover()` when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from quartermaster.connectors.attaching import Attaching
from quartermaster.connectors.context import Machine
from quartermaster.connectors.driver import Foreign, Listing, Needing, Opening, Roots, Settings
from quartermaster.connectors.errors import RecordDamagedError, UnsupportedDriverError
from quartermaster.connectors.files import HostFiles
from quartermaster.connectors.model import (
    Attachment,
    ConnectionInfo,
    ConnectorProperties,
    OsType,
    normal_type,
    platform_of,
)
from quartermaster.connectors.payload import decode
from quartermaster.connectors.records import Record, State
from quartermaster.connectors.registry import AnyDriver, clients_of, find_driver, known_types
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.volumes import volume_id_of
from quartermaster.host import procfs
from quartermaster.host.commands import Commands, HostCommands
from quartermaster.host.events import HostEvents
from quartermaster.host.locks import FileLocks
from quartermaster.host.places import state_directory
from quartermaster.support.errors import QuartermasterError

if TYPE_CHECKING:
    from quartermaster.connectors.using import Mounted, Statistics, Using
    from quartermaster.host.mounts import Mounts


class Listed(msgspec.Struct, frozen=True, rename="camel"):
    """One of our attachments: as it was recorded, and whether it is here now."""

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
            multipath=self._settings.multipath if multipath is None else multipath,
            do_local_attach=self._settings.do_local_attach if do_local_attach is None else do_local_attach,
        )
        return await gather_properties(self._machine, settings, self._os_type)

    async def connect(self, info: ConnectionInfo | Mapping[str, Any], *, timeout_s: float | None = None) -> Attachment:
        """Bring the volume to this host. Said twice it is as once."""
        info = _info(info)
        driver, data, place = self._read(info)
        volume_id = volume_id_of(info, place)
        if not self._settings.do_local_attach and isinstance(driver, Opening):
            return Attachment(volume_id, driver.route.driver_type, path=driver.uri(data), uri=True)
        return await self._attaching.connect(
            volume_id, driver, data, place, timeout_s=timeout_s or self._settings.timeout_s
        )

    async def disconnect(
        self, info: ConnectionInfo | Mapping[str, Any], *, force: bool = False, timeout_s: float | None = None
    ) -> str:
        """Take the volume away from this host, and return the path that is gone.

        A device that is in use is refused. `force` takes it away nevertheless, with what could not be written.
        """
        info = _info(info)
        driver, _, place = self._read(info)
        volume_id = volume_id_of(info, place)
        return await self._attaching.disconnect(
            volume_id, driver, place, force=force, timeout_s=timeout_s or self._settings.timeout_s
        )

    async def device_path(self, volume_id: str, *, timeout_s: float | None = None) -> str:
        """Where the volume is, after a look whether it still is. NotAttachedError where it is not."""
        return (await self.find(volume_id, timeout_s=timeout_s)).path

    async def find(self, volume_id: str, *, timeout_s: float | None = None) -> Attachment:
        """As `device_path`, with all that is known of the attachment."""
        return await self._attaching.find(volume_id, timeout_s=timeout_s or self._settings.timeout_s)

    async def extend(
        self, info: ConnectionInfo | Mapping[str, Any], *, mounted: str = "", timeout_s: float | None = None
    ) -> int:
        """Make this host see a volume's new size, in bytes. The file system on the directory `mounted` grows too."""
        info = _info(info)
        _, _, place = self._read(info)
        volume_id = volume_id_of(info, place)
        timeout_s = timeout_s or self._settings.timeout_s
        size = await self._attaching.extend(volume_id, timeout_s=timeout_s)
        if mounted:
            await self._using().grow(volume_id, mounted, timeout_s=timeout_s)
        return size

    async def mount(
        self,
        volume_id: str,
        target: str,
        *,
        file_system: str = "",
        options: Sequence[str] = (),
        read_only: bool = False,
        key: Secret | str = "",
        timeout_s: float | None = None,
    ) -> Mounted:
        """Mount a connected volume on a directory; said twice it is as once, and a corrupted mount is made anew.

        A blank device gets the file system (ext4 unless another is named) and, with a `key`, is encrypted. A device
        with anything else on it is refused. A volume that is a file or directory itself is bound there.
        """
        return await self._using().mount(
            volume_id,
            target,
            file_system=file_system,
            options=options,
            read_only=read_only,
            key=key if isinstance(key, Secret) else Secret(key),
            timeout_s=timeout_s or self._settings.timeout_s,
        )

    async def unmount(
        self, volume_id: str, target: str, *, force: bool = False, timeout_s: float | None = None
    ) -> bool:
        """Whether something was mounted. `force` takes it away also where files are open or its server is dead."""
        timeout_s = timeout_s or self._settings.timeout_s
        return await self._using().unmount(volume_id, target, force=force, timeout_s=timeout_s)

    async def statistics(self, volume_id: str, *, target: str = "", timeout_s: float | None = None) -> Statistics:
        """How large and how full it is, where it is mounted on `target`; of a mere device, how large."""
        timeout_s = timeout_s or self._settings.timeout_s
        return await self._using().statistics(volume_id, target=target, timeout_s=timeout_s)

    async def recover(self, *, timeout_s: float | None = None) -> tuple[Recovered, ...]:
        """Take back what processes that died have begun. One volume that resists does not hold up the others."""
        done: list[Recovered] = []
        for record in self._attaching.records.all():
            if isinstance(record, RecordDamagedError):
                done.append(Recovered("", "damaged", str(record)))
            elif record.state is not State.CONNECTED:
                done.extend(await self._recover(record, timeout_s or self._settings.timeout_s))
        return tuple(done)

    async def list(self, *, foreign: bool = True, timeout_s: float | None = None) -> Inventory:
        """Our own attachments; and what else of the kind is on this host, marked as not ours."""
        timeout = timeout_s or self._settings.timeout_s
        own: list[Listed] = []
        taken: list[str] = []
        for record in self._attaching.records.all():
            if isinstance(record, RecordDamagedError):
                own.append(Listed("", "", "damaged", problem=str(record)))
                continue
            own.append(await self._listed(record, timeout))
            taken += [record.path, record.device, *record.claims]
        return Inventory(tuple(own), await self._foreign(taken, timeout) if foreign else ())

    async def _listed(self, record: Record, timeout_s: float) -> Listed:
        problem = ""
        try:
            if record.state is State.CONNECTED:
                await self._attaching.find(record.volume_id, timeout_s=timeout_s)
        except QuartermasterError as error:
            problem = str(error)
        return Listed(
            volume_id=record.volume_id,
            driver_volume_type=record.driver,
            state=str(record.state),
            path=record.path,
            device=record.device,
            present=record.state is State.CONNECTED and not problem,
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

    async def _recover(self, record: Record, timeout_s: float) -> Sequence[Recovered]:
        try:
            done = await self._attaching.recover(record.volume_id, timeout_s=timeout_s)
        except QuartermasterError as error:
            return [Recovered(record.volume_id, str(record.state), str(error))]
        return [Recovered(record.volume_id, str(record.state))] if done else []

    def _read(self, info: ConnectionInfo) -> tuple[AnyDriver, msgspec.Struct, msgspec.Struct]:
        driver = self._driver(info.driver_type, self._settings.clients.get(info.driver_type, ""))
        route = driver.route
        data = decode(route.data, info.data, driver=route.driver_type, aliases=route.aliases)
        return driver, data, driver.identify(data, self._settings)

    def _using(self) -> Using:
        # Imported here: a program that only connects does without it.
        from quartermaster.connectors.using import Using

        return Using(self._attaching)

    def _recorded(self, record: Record) -> AnyDriver:
        return self._driver(record.driver, record.client)

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
    directory: Path | None = None,
    mount_directory: Path | None = None,
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
    own = directory or state_directory() / "connectors"
    roots = roots or Roots()
    settings = Settings(
        multipath=multipath,
        do_local_attach=do_local_attach,
        clients={normal_type(name): client for name, client in (clients or {}).items()},
        mount_directory=mount_directory or own / "mounts",
        host=host,
        ip=ip,
        initiator=initiator,
        timeout_s=timeout_s,
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
    return Connector(parts, settings, os_type=OsType(os_type))


def _mounts(commands: Commands, mountinfo: Path) -> Mounts:
    # Imported here: a program that attaches devices mounts nothing.
    from quartermaster.host.mounts import HostMounts

    return HostMounts(commands, mountinfo=mountinfo)


def _words_for(one: Foreign) -> set[str]:
    """How a record would name it: as a path or device, or as a shared thing."""
    return {one.path, f"{one.kind} {one.path}", f"{one.kind} {one.name}"} - {""}


def _info(given: ConnectionInfo | Mapping[str, Any]) -> ConnectionInfo:
    return given if isinstance(given, ConnectionInfo) else ConnectionInfo.from_map(given)
