"""Exports of file servers: NFS, SMB, GlusterFS and Quobyte. They differ only in how they are mounted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ClassVar

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
from quartermaster.connectors.names import file_name
from quartermaster.connectors.options import parse_options, public, value_of, without
from quartermaster.connectors.secret import Secret
from quartermaster.host.tools import Tool, register
from quartermaster.support.errors import CommandError

register(
    Tool("mount.nfs", "nfs-common", "mounts NFS exports"),
    Tool("mount.cifs", "cifs-utils", "mounts SMB shares"),
    Tool("mount.glusterfs", "glusterfs-client", "mounts GlusterFS volumes"),
)

_VERSIONS = ("vers", "nfsvers", "v3", "v4", "v4.0", "v4.1", "v4.2")
_LADDER = (("vers=4.2",), ("vers=4.1",), ())
# What mount.nfs and the kernel say of a version that the other side, or this kernel, does not speak.
_OTHER_VERSION = ("not supported", "incorrect mount option", "Invalid argument", "Protocol not supported")


class ShareConnectionData(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`export` as the mount program takes it; `name` is the volume's file in it, if it is one of many."""

    export: str
    name: str = ""
    options: str | tuple[str, ...] | None = None
    mount_point_base: str = ""
    volume_id: str = ""
    # of SMB only
    username: str = ""
    password: Secret = Secret()
    domain: str = ""
    credentials: str = ""  # a file that is there already
    _shape: ClassVar[tuple[str, str, str, str]] = ("", "", "", "")  # how an export begins, what it holds; in words

    def __post_init__(self) -> None:
        wrong = Mistakes()
        begins, holds, shape, example = self._shape
        export = self.export.strip()
        if not export.replace("\\", "/").startswith(begins) or holds not in export:
            wrong.add("export", f"is not {shape}", f'for example "{example}"')
        check_inside(wrong, self.mount_point_base, name=self.name)
        texts = {"username": self.username, "password": self.password.reveal(), "domain": self.domain}
        for key, text in texts.items():
            if any(ord(character) < 32 for character in text):
                wrong.add(key, "has a control character in it", "leave it out")
        wrong.tell()


class NfsConnectionData(ShareConnectionData, frozen=True, rename="camel", omit_defaults=True):
    _shape: ClassVar[tuple[str, str, str, str]] = ("", ":", "HOST:/PATH", "192.0.2.1:/volumes")


class SmbConnectionData(ShareConnectionData, frozen=True, rename="camel", omit_defaults=True):
    _shape: ClassVar[tuple[str, str, str, str]] = ("//", "", "//HOST/SHARE", "//192.0.2.1/share")


Mounting = Callable[[Context, ShareConnectionData, MountPlace], Awaitable[None]]


class ShareDriver(msgspec.Struct, frozen=True):
    route: Route
    file_system: str  # what `mount -t` calls it
    shown_as: tuple[str, ...]  # what the kernel's table calls it
    mount: Mounting

    def identify(self, data: ShareConnectionData, settings: Settings) -> MountPlace:
        options = public(parse_options(data.options))
        source = data.export.strip()
        base = Path(data.mount_point_base) if data.mount_point_base else settings.mount_directory
        target = target_of(base, self.file_system, source, (*options, f"as {_username(data)}"))
        return MountPlace(source, target, self.shown_as, options, data.name)

    async def attach(self, context: Context, data: ShareConnectionData, place: MountPlace) -> Found:
        return await join_mount(context, place, lambda: self.mount(context, data, place))

    async def find(self, context: Context, place: MountPlace) -> Found | None:
        return find_mount(context, place)

    async def broken(self, context: Context, place: MountPlace) -> bool:
        return await is_corrupted(context, place)

    async def away(self, context: Context, place: MountPlace) -> str:
        return await mount_away(context, place)

    async def detach(self, context: Context, place: MountPlace, *, force: bool) -> None:
        context.files.remove(_credentials_file(context))
        await leave_mount(context, place, force=force)

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        return foreign_mounts(context, self.route.driver_type, self.shown_as)


async def _mount_nfs(context: Context, _data: ShareConnectionData, place: MountPlace) -> None:
    """The newest version that both sides speak, unless the options name one."""
    given = any(option.partition("=")[0] in _VERSIONS for option in place.options)
    for version in ((),) if given else _LADDER:
        try:
            await context.mounts.mount(place.source, place.target, type="nfs", options=(*place.options, *version))
        except CommandError as error:
            if not version or not any(words in error.stderr for words in _OTHER_VERSION):
                raise
        else:
            return


async def _mount_smb(context: Context, data: ShareConnectionData, place: MountPlace) -> None:
    """The credentials go through a file: every user of the host can read an argument list."""
    options = without(place.options, "username", "user", "domain", "credentials", "cred")
    given = data.credentials or value_of(place.options, "credentials", "cred")
    if given:
        await context.mounts.mount(place.source, place.target, type="cifs", options=(*options, f"credentials={given}"))
        return
    if not _username(data):
        await context.mounts.mount(place.source, place.target, type="cifs", options=(*options, "guest"))
        return
    file = _credentials_file(context)
    context.files.write(file, _credentials(context, data))
    try:
        await context.mounts.mount(place.source, place.target, type="cifs", options=(*options, f"credentials={file}"))
    finally:
        context.files.remove(file)


async def _mount_plainly(context: Context, place: MountPlace, type: str) -> None:
    await context.mounts.mount(place.source, place.target, type=type, options=place.options)


async def _mount_glusterfs(context: Context, _data: ShareConnectionData, place: MountPlace) -> None:
    await _mount_plainly(context, place, "glusterfs")


async def _mount_quobyte(context: Context, _data: ShareConnectionData, place: MountPlace) -> None:
    await _mount_plainly(context, place, "quobyte")


def _credentials(context: Context, data: ShareConnectionData) -> bytes:
    options = parse_options(data.options)
    password = data.password.reveal() or value_of(options, "password", "pass")
    domain = data.domain or value_of(options, "domain", "dom")
    context.hide(password)
    lines = [f"username={_username(data)}", f"password={password}"] + ([f"domain={domain}"] if domain else [])
    return "".join(f"{line}\n" for line in lines).encode()


def _username(data: ShareConnectionData) -> str:
    return data.username or value_of(parse_options(data.options), "username", "user")


def _credentials_file(context: Context) -> Path:
    return context.directory / "secrets" / file_name(context.volume_id)


def _route(driver_type: DriverType, data: type[ShareConnectionData] = ShareConnectionData) -> Route:
    aliases = {"share": "export"}
    return Route(driver_type, data, MountPlace, aliases=aliases)


NFS = ShareDriver(_route(DriverType.NFS, NfsConnectionData), "nfs", ("nfs", "nfs4"), _mount_nfs)
SMBFS = ShareDriver(_route(DriverType.SMBFS, SmbConnectionData), "cifs", ("cifs", "smb3"), _mount_smb)
GLUSTERFS = ShareDriver(_route(DriverType.GLUSTERFS), "glusterfs", ("fuse.glusterfs",), _mount_glusterfs)
QUOBYTE = ShareDriver(_route(DriverType.QUOBYTE), "quobyte", ("fuse.quobyte", "fuse"), _mount_quobyte)
