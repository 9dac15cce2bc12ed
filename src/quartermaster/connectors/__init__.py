"""Volumes of any storage system, attached to this host and detached again: `open_connector`, and what it speaks of.

It needs no store and no Kubernetes. Names are imported when they are used, for a program that attaches one volume
should not wait for the code of twenty drivers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from quartermaster.connectors.model import (
    AOE,
    CEPHFS,
    DISCO,
    DRBD,
    FIBRE_CHANNEL,
    GLUSTERFS,
    GPFS,
    HGST,
    HUAWEISDSHYPERVISOR,
    ISCSI,
    ISER,
    LOCAL,
    NBD,
    NFS,
    NVMEOF,
    OS_TYPE_ALL,
    OS_TYPE_LINUX,
    OS_TYPE_WINDOWS,
    PLATFORM_AARCH64,
    PLATFORM_ALL,
    PLATFORM_PPC64,
    PLATFORM_S390,
    QUOBYTE,
    RBD,
    SCALEIO,
    SCALITY,
    SMBFS,
    VOLUME_LINK_DIR,
    VZSTORAGE,
    Attachment,
    ConnectionInfo,
    ConnectorProperties,
    DriverType,
    OsType,
    Platform,
    PLATFORM_x86,
)

if TYPE_CHECKING:
    from quartermaster.connectors.connector import Connector, Inventory, Listed, Recovered, open_connector
    from quartermaster.connectors.driver import Driver, Foreign, Found, Roots, Settings
    from quartermaster.connectors.errors import (
        AttachmentConflictError,
        AuthenticationError,
        ConnectionDataError,
        ConnectorError,
        IdentityMismatchError,
        LeftoverError,
        NotAppearingError,
        NotAttachedError,
        RecordDamagedError,
        UnreachableError,
        UnsupportedDriverError,
        VolumeBusyError,
    )
    from quartermaster.connectors.payload import to_map
    from quartermaster.connectors.secret import Secret

_PLACES = {
    "Connector": "connector",
    "Inventory": "connector",
    "Listed": "connector",
    "Recovered": "connector",
    "open_connector": "connector",
    "Driver": "driver",
    "Foreign": "driver",
    "Found": "driver",
    "Roots": "driver",
    "Settings": "driver",
    "AttachmentConflictError": "errors",
    "AuthenticationError": "errors",
    "ConnectionDataError": "errors",
    "ConnectorError": "errors",
    "IdentityMismatchError": "errors",
    "LeftoverError": "errors",
    "NotAppearingError": "errors",
    "NotAttachedError": "errors",
    "RecordDamagedError": "errors",
    "UnreachableError": "errors",
    "UnsupportedDriverError": "errors",
    "VolumeBusyError": "errors",
    "to_map": "payload",
    "Secret": "secret",
}

__all__ = [
    "AOE",
    "CEPHFS",
    "DISCO",
    "DRBD",
    "FIBRE_CHANNEL",
    "GLUSTERFS",
    "GPFS",
    "HGST",
    "HUAWEISDSHYPERVISOR",
    "ISCSI",
    "ISER",
    "LOCAL",
    "NBD",
    "NFS",
    "NVMEOF",
    "OS_TYPE_ALL",
    "OS_TYPE_LINUX",
    "OS_TYPE_WINDOWS",
    "PLATFORM_AARCH64",
    "PLATFORM_ALL",
    "PLATFORM_PPC64",
    "PLATFORM_S390",
    "QUOBYTE",
    "RBD",
    "SCALEIO",
    "SCALITY",
    "SMBFS",
    "VOLUME_LINK_DIR",
    "VZSTORAGE",
    "Attachment",
    "AttachmentConflictError",
    "AuthenticationError",
    "ConnectionDataError",
    "ConnectionInfo",
    "Connector",
    "ConnectorError",
    "ConnectorProperties",
    "Driver",
    "DriverType",
    "Foreign",
    "Found",
    "IdentityMismatchError",
    "Inventory",
    "LeftoverError",
    "Listed",
    "NotAppearingError",
    "NotAttachedError",
    "OsType",
    "PLATFORM_x86",
    "Platform",
    "RecordDamagedError",
    "Recovered",
    "Roots",
    "Secret",
    "Settings",
    "UnreachableError",
    "UnsupportedDriverError",
    "VolumeBusyError",
    "open_connector",
    "to_map",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
