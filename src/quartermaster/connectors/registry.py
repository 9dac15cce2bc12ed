"""Which driver serves which type on which platform. Nothing is imported before it is needed.

Drivers of this package stand in a table: asking the installed packages for entry points costs more than a whole attach.
A type that is not in the table is looked for there, in the group `quartermaster.connectors`; the name of an entry point
is the type, with `:userspace` behind it for a route that is not the kernel's.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from quartermaster.connectors.driver import KERNEL, USERSPACE, Driver
from quartermaster.connectors.errors import ConnectorError, UnsupportedDriverError
from quartermaster.connectors.model import DriverType, OsType, Platform, normal_type
from quartermaster.support.errors import QuartermasterError

ENTRY_POINTS = "quartermaster.connectors"
AnyDriver: TypeAlias = Driver[Any, Any]

_DRIVERS = "quartermaster.connectors.drivers"

# type → client → module:name of the driver. The first client is the one that is used unless another is chosen.
_TABLE: dict[str, dict[str, str]] = {
    DriverType.NFS: {KERNEL: ".shares:NFS"},
    DriverType.SMBFS: {KERNEL: ".shares:SMBFS"},
    DriverType.GLUSTERFS: {KERNEL: ".shares:GLUSTERFS", USERSPACE: ".gluster_userspace:DRIVER"},
    DriverType.QUOBYTE: {KERNEL: ".shares:QUOBYTE"},
    DriverType.CEPHFS: {KERNEL: ".cephfs:KERNEL_CLIENT", "fuse": ".cephfs:FUSE_CLIENT"},
    DriverType.ISCSI: {KERNEL: ".iscsi:ISCSI", USERSPACE: ".iscsi_userspace:DRIVER"},
    DriverType.ISER: {KERNEL: ".iscsi:ISER"},
    DriverType.FIBRE_CHANNEL: {KERNEL: ".fibre_channel:DRIVER"},
    DriverType.NBD: {KERNEL: ".nbd:KERNEL_CLIENT", USERSPACE: ".nbd:USERSPACE_CLIENT"},
    DriverType.RBD: {
        KERNEL: ".rbd:KERNEL_CLIENT",
        "rbd-nbd": ".rbd_daemons:NBD_CLIENT",
        USERSPACE: ".rbd_daemons:USERSPACE_CLIENT",
    },
    DriverType.LOCAL: {KERNEL: ".local:DRIVER"},
    DriverType.GPFS: {KERNEL: ".gpfs:DRIVER"},
    DriverType.AOE: {KERNEL: ".aoe:DRIVER"},
    DriverType.DRBD: {KERNEL: ".drbd:DRIVER"},
    DriverType.SCALITY: {KERNEL: ".scality:DRIVER"},
    DriverType.VZSTORAGE: {KERNEL: ".vzstorage:DRIVER"},
    DriverType.HUAWEISDSHYPERVISOR: {KERNEL: ".huawei:DRIVER"},
    DriverType.HGST: {KERNEL: ".hgst:DRIVER"},
    DriverType.SCALEIO: {KERNEL: ".scaleio:DRIVER"},
    DriverType.DISCO: {KERNEL: ".disco:DRIVER"},
    DriverType.NVMEOF: {KERNEL: ".nvmeof:DRIVER"},
}


def find_driver(type: str, *, platform: Platform, os_type: OsType = OsType.LINUX, client: str = "") -> AnyDriver:
    wanted = normal_type(type)
    if os_type is OsType.WINDOWS:
        raise UnsupportedDriverError(
            f"cannot use {wanted}: not supported on WIN", hint="connect the volume on a Linux host"
        )
    routes = _TABLE.get(wanted) or _from_packages(wanted)
    if not routes:
        raise UnsupportedDriverError(
            f'cannot use "{type}": there is no driver of that type', hint=f"there are {', '.join(known_types())}"
        )
    # container:IMAGE is one route, whatever the image.
    chosen = client.partition(":")[0] or next(iter(routes))
    if chosen not in routes:
        raise UnsupportedDriverError(
            f"cannot use {wanted}: it has no {chosen} client", hint=f"it has {', '.join(routes)}"
        )
    driver = _load(routes[chosen])
    if Platform.ALL not in driver.route.platforms and platform not in driver.route.platforms:
        raise UnsupportedDriverError(
            f"cannot use {wanted}: it has no driver for the platform {platform}",
            hint=f"it runs on {', '.join(driver.route.platforms)}",
        )
    return driver


def known_types() -> tuple[str, ...]:
    return tuple(sorted({*_TABLE, *(name.partition(":")[0] for name in _entry_points())}))


def clients_of(type: str) -> tuple[str, ...]:
    """The routes of a type; the first is the default."""
    wanted = normal_type(type)
    return tuple(_TABLE.get(wanted) or _from_packages(wanted))


def require_clients(clients: Mapping[str, str]) -> None:
    """UnsupportedDriverError for a type or client that there is not: else it would be noticed late, or never."""
    for name, client in clients.items():
        routes = clients_of(name)
        if not routes:
            raise UnsupportedDriverError(
                f'cannot choose a client for "{name}": there is no driver of that type',
                hint=f"there are {', '.join(known_types())}",
            )
        if client.partition(":")[0] not in routes:
            raise UnsupportedDriverError(
                f"cannot use {name}: it has no {client} client", hint=f"it has {', '.join(routes)}"
            )


def _from_packages(type: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in sorted(_entry_points().items()):
        own, _, client = name.partition(":")
        if normal_type(own) == type:
            found[client or KERNEL] = value
    return found


def _entry_points() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def blame(driver: AnyDriver, verb: str, error: BaseException | None) -> None:
    """Whatever a driver of another package does not handle is named as its own."""
    module = type(driver).__module__
    foreign = not module.startswith("quartermaster.")
    if foreign and isinstance(error, Exception) and not isinstance(error, QuartermasterError):
        raise ConnectorError(
            f"cannot {verb}: the driver {driver.route.driver_type} of {module} failed: {type(error).__name__}: {error}",
            hint=f"tell those who made {module.partition('.')[0]}",
        ) from error


def _load(place: str) -> AnyDriver:
    module, _, name = place.partition(":")
    if module.startswith("."):
        return cast("AnyDriver", getattr(importlib.import_module(module, package=_DRIVERS), name))
    try:
        driver: Any = importlib.import_module(module)
        for part in name.split("."):
            driver = getattr(driver, part)
    except Exception as error:
        raise _broken(place, f"{type(error).__name__}: {error}") from error
    if isinstance(driver, type):
        raise _broken(place, "it is a class, and not a driver made from it")
    missing = [each for each in ("route", "identify", "attach", "find", "detach") if not hasattr(driver, each)]
    if missing:
        raise _broken(place, f"it has no {', '.join(missing)}")
    return cast("AnyDriver", driver)


def _broken(place: str, cause: str) -> UnsupportedDriverError:
    return UnsupportedDriverError(
        f"cannot use the driver {place} of another package: {cause}",
        hint=f"tell those who made {place.partition(':')[0].partition('.')[0]}",
    )
