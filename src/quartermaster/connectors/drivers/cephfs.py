"""CephFS, by the kernel's client or by ceph-fuse. The key goes through a file that is gone when it is mounted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import KERNEL, Foreign, Found, Route, Settings
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
from quartermaster.connectors.names import file_name
from quartermaster.connectors.options import parse_options, public
from quartermaster.connectors.secret import Secret
from quartermaster.host.tools import Tool, register

register(
    Tool("mount.ceph", "ceph-common", "mounts CephFS with the kernel's client"),
    Tool("mount.fuse.ceph", "ceph-fuse", "mounts CephFS with ceph-fuse"),
)

FUSE = "fuse"


class CephfsConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    monitors: str | tuple[str, ...]
    path: str = "/"
    user: str = "admin"
    secret: Secret = Secret()
    secret_file: str = ""  # a file with the bare key (kernel) or a keyring (fuse) that is there already
    file_system: str = ""  # which, in a cluster with several
    name: str = ""
    options: str | tuple[str, ...] | None = None
    mount_point_base: str = ""
    volume_id: str = ""

    def __post_init__(self) -> None:
        wrong = Mistakes()
        check_inside(wrong, self.mount_point_base, name=self.name)
        if any(ord(character) < 32 for character in self.secret.reveal().strip()):
            wrong.add("secret", "has a control character in it", "give the key alone")
        wrong.tell()


class CephfsPlace(MountPlace, frozen=True):
    monitors: str = ""
    directory: str = "/"
    user: str = ""
    file_system: str = ""


_ALIASES = {
    "hosts": "monitors",
    "auth_username": "user",
    "auth_password": "secret",
    "mds_namespace": "file_system",
}


class CephfsDriver(msgspec.Struct, frozen=True):
    route: Route
    shown_as: tuple[str, ...]

    def identify(self, data: CephfsConnectionData, settings: Settings) -> CephfsPlace:
        given = data.monitors.split(",") if isinstance(data.monitors, str) else data.monitors
        monitors = ",".join(sorted(monitor.strip() for monitor in given if monitor.strip()))
        options = public(parse_options(data.options))
        directory = "/" + data.path.strip("/")
        source = f"{monitors}:{directory}"
        base = Path(data.mount_point_base) if data.mount_point_base else settings.mount_directory
        parts = (*options, f"as {data.user}", f"of {data.file_system}", f"by {self.route.client}")
        target = target_of(base, "cephfs", source, parts)
        return CephfsPlace(
            source,
            target,
            self.shown_as,
            options,
            data.name,
            monitors=monitors,
            directory=directory,
            user=data.user,
            file_system=data.file_system,
        )

    async def attach(self, context: Context, data: CephfsConnectionData, place: CephfsPlace) -> Found:
        return await join_mount(context, place, lambda: self._mount(context, data, place))

    async def find(self, context: Context, place: CephfsPlace) -> Found | None:
        return find_mount(context, place)

    async def broken(self, context: Context, place: CephfsPlace) -> bool:
        return await is_corrupted(context, place)

    async def away(self, context: Context, place: CephfsPlace) -> str:
        return await mount_away(context, place)

    async def detach(self, context: Context, place: CephfsPlace, *, force: bool) -> None:
        context.files.remove(_key_file(context))
        await leave_mount(context, place, force=force)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return foreign_mounts(context, self.route.driver_type, self.shown_as)

    async def _mount(self, context: Context, data: CephfsConnectionData, place: CephfsPlace) -> None:
        file = _key_file(context)
        if data.secret:
            key = data.secret.reveal()
            keyring = f"[client.{place.user}]\n\tkey = {key}\n"
            context.files.write(file, (key if self.route.client == KERNEL else keyring).encode())
        key_file = str(file) if data.secret else data.secret_file
        try:
            if self.route.client == KERNEL:
                options = _kernel_options(place, key_file)
                await context.mounts.mount(place.source, place.target, type="ceph", options=options)
            else:
                # Through mount's helper: ceph-fuse itself would stay as a daemon with the same arguments.
                await context.mounts.mount(
                    "none", place.target, type="fuse.ceph", options=_fuse_options(place, key_file)
                )
        finally:
            if data.secret:
                context.files.remove(file)


def _kernel_options(place: CephfsPlace, key_file: str) -> tuple[str, ...]:
    own = [f"name={place.user}"]
    own += [f"secretfile={key_file}"] if key_file else []
    own += [f"mds_namespace={place.file_system}"] if place.file_system else []
    return (*own, *place.options)


def _fuse_options(place: CephfsPlace, key_file: str) -> tuple[str, ...]:
    # mount separates options by commas, ceph takes several monitors separated by semicolons too.
    own = [f"ceph.name=client.{place.user}", f"ceph.mon_host={place.monitors.replace(',', ';')}"]
    own += [f"ceph.keyring={key_file}"] if key_file else []
    own += [f"ceph.client_fs={place.file_system}"] if place.file_system else []
    own += [f"ceph.client_mountpoint={place.directory}"]
    return (*own, *place.options)


def _key_file(context: Context) -> Path:
    return context.directory / "secrets" / file_name(context.volume_id)


def _route(client: str) -> Route:
    return Route(DriverType.CEPHFS, CephfsConnectionData, CephfsPlace, client=client, aliases=_ALIASES)


KERNEL_CLIENT = CephfsDriver(_route(KERNEL), ("ceph",))
FUSE_CLIENT = CephfsDriver(_route(FUSE), ("fuse.ceph-fuse", "fuse.ceph"))
