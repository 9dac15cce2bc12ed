"""Images of Ceph's RBD where the kernel has no client for them: by rbd-nbd and the kernel's NBD, or by neither."""

from __future__ import annotations

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import USERSPACE, Found, Roots, Settings
from quartermaster.connectors.drivers.rbd import (
    RbdConnectionData,
    RbdPlace,
    access,
    drop_keyring,
    key_of,
    place_of,
    put_keyring,
    route_of,
    uri_of,
)
from quartermaster.connectors.files import Files
from quartermaster.connectors.model import DriverType
from quartermaster.connectors.nbds import Serving, attach_nbd, detach_nbd, find_nbd, has_nbd
from quartermaster.connectors.nbds import key_of as nbd_key_of
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.userspace import SECRET, Source, UserspaceDriver
from quartermaster.host.tools import Tool, register

register(Tool("rbd-nbd", "rbd-nbd", "serves images of Ceph as NBD devices"))

NBD = "rbd-nbd"
_NO_SECRET = Secret()


class RbdNbdDriver:
    """The daemon hears of a new size by itself and tells the kernel."""

    route = route_of(NBD)

    def identify(self, data: RbdConnectionData, settings: Settings) -> RbdPlace:  # noqa: ARG002
        return place_of(data)

    def usable(self, roots: Roots, files: Files) -> bool:
        return has_nbd(roots, files)

    async def attach(self, context: Context, data: RbdConnectionData, place: RbdPlace) -> Found:
        put_keyring(context, data)
        try:
            reach = access(context, data, place)
            return await attach_nbd(context, _serving(place, reach, key_of(context, data)))
        finally:
            drop_keyring(context)

    async def find(self, context: Context, place: RbdPlace) -> Found | None:
        return await find_nbd(context, _serving(place))

    async def detach(self, context: Context, place: RbdPlace, *, force: bool) -> None:
        drop_keyring(context)
        await detach_nbd(context, _serving(place), force=force)

    def uri(self, data: RbdConnectionData) -> str:
        return uri_of(data)


def _serving(place: RbdPlace, reach: tuple[str, ...] = (), secret: Secret = _NO_SECRET) -> Serving:
    flags = ("--read-only",) if place.read_only else ()

    def argv(device: str) -> tuple[str, ...]:
        # In the foreground: it is a daemon of this host already.
        return ("rbd-nbd", "map", "-f", *reach, *flags, "--device", device, place.specification)

    return Serving(
        nbd_key_of(DriverType.RBD, NBD, place),
        place.name,
        argv,
        lambda device: ("rbd-nbd", "unmap", device),
        secret,
    )


def _sources(context: Context, data: RbdConnectionData, place: RbdPlace) -> list[Source]:
    key = key_of(context, data)
    options: dict[str, object] = {
        "driver": "rbd",
        "pool": place.pool,
        "image": place.image,
        "user": data.user,
        "server": [{"host": monitor.host, "port": str(monitor.port)} for monitor in place.monitors],
    }
    if place.namespace:
        options["namespace"] = place.namespace
    if place.snapshot:
        options["snapshot"] = place.snapshot
    if key:
        options["key-secret"] = SECRET
    return [Source(place.name, options, key, encoded=True)]


NBD_CLIENT = RbdNbdDriver()
USERSPACE_CLIENT = UserspaceDriver(route_of(USERSPACE), place_of, _sources, uri_of)
