"""Virtuozzo Storage: a cluster with a name, mounted by its own program; a volume is a file in it.

The program stays as the daemon that serves the mount, with the arguments it was started with. It is started through
`timeout`, which ends when the mount is made: that is what a crash leaves to be waited for, and not the daemon.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Foreign, Found, Route, Settings
from quartermaster.connectors.mistakes import Mistakes
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.mounting import (
    MountPlace,
    check_inside,
    find_mount,
    foreign_mounts,
    is_corrupted,
    join_mount,
    leave_mount,
    mount_away,
    target_of,
)
from quartermaster.host.commands import Command
from quartermaster.host.targets import prepare_directory
from quartermaster.host.tools import Tool, hint_for, register
from quartermaster.support.errors import CommandError, ToolMissingError

register(
    Tool("pstorage", "pstorage-client, of the storage system", "logs this host in to Virtuozzo clusters"),
    Tool("pstorage-mount", "pstorage-client, of the storage system", "mounts Virtuozzo clusters"),
    Tool("timeout", "coreutils", "starts programs that stay as daemons"),
)

_EXPORT = re.compile(r"(?:(?P<servers>[^\s/]+):/)?(?P<cluster>[A-Za-z0-9_][A-Za-z0-9_-]*)(?::(?P<password>\S+))?")
_SHOWN_AS = ("fuse.pstorage", "fuse.vstorage", "fuse")
_MOUNTING_S = 60
_NO_PROGRAM = 127  # what `timeout` says then


class VzstorageConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`export` is `[SERVER[,SERVER]:/]CLUSTER[:PASSWORD]`, `options` are those of pstorage-mount."""

    export: str
    name: str = ""
    options: str | tuple[str, ...] | None = None
    mount_point_base: str = ""
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        if not _EXPORT.fullmatch(self.export):
            wrong.add("export", "is not [SERVER[,SERVER]:/]CLUSTER[:PASSWORD]", 'for example "cluster-1"')
        check_inside(wrong, self.mount_point_base, name=self.name)
        wrong.tell()

    def __repr__(self) -> str:
        return f"VzstorageConnectionData(name={self.name!r})"


class VzstoragePlace(MountPlace, frozen=True):
    servers: tuple[str, ...] = ()

    @property
    def list_thing(self) -> str:
        return f"servers {self.source}"


class VzstorageDriver:
    route = Route(DriverType.VZSTORAGE, VzstorageConnectionData, VzstoragePlace, aliases={"share": "export"})

    def identify(self, data: VzstorageConnectionData, settings: Settings) -> VzstoragePlace:
        servers, cluster, _ = _parts(data)
        options = tuple(data.options.split() if isinstance(data.options, str) else data.options or ())
        base = Path(data.mount_point_base) if data.mount_point_base else settings.mount_directory
        target = target_of(base, "vzstorage", cluster, options)
        return VzstoragePlace(cluster, target, _SHOWN_AS, options, data.name, servers=servers)

    async def attach(self, context: Context, data: VzstorageConnectionData, place: VzstoragePlace) -> Found:
        password = _parts(data)[2]
        context.hide(password)
        if place.servers:
            await _join_list(context, place)
        return await join_mount(context, place, lambda: _mount(context, place, password))

    async def find(self, context: Context, place: VzstoragePlace) -> Found | None:
        return find_mount(context, place)

    async def broken(self, context: Context, place: VzstoragePlace) -> bool:
        return await is_corrupted(context, place)

    async def away(self, context: Context, place: VzstoragePlace) -> str:
        return await mount_away(context, place)

    async def detach(self, context: Context, place: VzstoragePlace, *, force: bool) -> None:
        await leave_mount(context, place, force=force)
        if place.servers:
            await _leave_list(context, place)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return foreign_mounts(context, self.route.driver_type, _SHOWN_AS[:-1])


async def _mount(context: Context, place: VzstoragePlace, password: str) -> None:
    if password:
        argv = ("pstorage", "-c", place.source, "auth-node", "-P")
        verb = f"log in to the cluster {place.source}"
        await context.commands.run(Command(argv, verb=verb, stdin=password.encode()))
    prepare_directory(place.target, protect=False)
    program = ("pstorage-mount", "-c", place.source, *place.options, place.target)
    verb = f"mount the cluster {place.source} on {place.target}"
    try:
        await context.commands.run(
            Command(("timeout", str(_MOUNTING_S), *program), verb=verb, timeout_s=_MOUNTING_S + 5.0)
        )
    except CommandError as error:
        if error.exit_code != _NO_PROGRAM:
            raise
        raise ToolMissingError(
            f"cannot {verb}: pstorage-mount is not installed", hint=hint_for("pstorage-mount")
        ) from error


async def _join_list(context: Context, place: VzstoragePlace) -> None:
    """The client asks these servers for the cluster. A list that is there is the administrator's, and is kept."""
    file = _list_file(context, place)

    async def present() -> bool:
        return context.files.exists(file)

    async with context.joining(place.list_thing, present=present) as joined:
        if not joined.present:
            context.files.write(file, "".join(f"{server}\n" for server in place.servers).encode())


async def _leave_list(context: Context, place: VzstoragePlace) -> None:
    async with context.leaving(place.list_thing) as leaving:
        if leaving.last and leaving.ours:
            file = _list_file(context, place)
            context.files.remove(file)
            for directory in list(file.parents)[:3]:
                context.files.remove_directory(directory)


def _list_file(context: Context, place: VzstoragePlace) -> Path:
    return context.roots.etc / "pstorage/clusters" / place.source / "bs_list"


def _parts(data: VzstorageConnectionData) -> tuple[tuple[str, ...], str, str]:
    """Servers, cluster, password."""
    found = _EXPORT.fullmatch(data.export)
    if found is None:
        raise ValueError("export is not [SERVER[,SERVER]:/]CLUSTER[:PASSWORD]")
    servers = tuple(server for server in (found["servers"] or "").split(",") if server)
    return servers, found["cluster"], found["password"] or ""


DRIVER = VzstorageDriver()
