"""The words of the library, in the spelling of its specification and as enums, and the three documents it exchanges.

`ConnectionInfo` is what a storage system says about a volume; its JSON comes out as it went in, key by key, whether it
is written as the specification has it (`driverVolumeType`) or as OpenStack's (`driver_volume_type`).
`ConnectorProperties` is what a storage system may want to know about this host. `Attachment` is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from quartermaster.connectors.errors import ConnectionDataError
from quartermaster.support.errors import Problem

PLATFORM_ALL = "ALL"
PLATFORM_x86 = "X86"
PLATFORM_S390 = "S390"
PLATFORM_PPC64 = "PPC64"
PLATFORM_AARCH64 = "AARCH64"

OS_TYPE_ALL = "ALL"
OS_TYPE_LINUX = "LINUX"
OS_TYPE_WINDOWS = "WIN"

ISCSI = "ISCSI"
ISER = "ISER"
FIBRE_CHANNEL = "FIBRE_CHANNEL"
AOE = "AOE"
DRBD = "DRBD"
NFS = "NFS"
GLUSTERFS = "GLUSTERFS"
LOCAL = "LOCAL"
GPFS = "GPFS"
HUAWEISDSHYPERVISOR = "HUAWEISDSHYPERVISOR"
HGST = "HGST"
RBD = "RBD"
SCALEIO = "SCALEIO"
SCALITY = "SCALITY"
QUOBYTE = "QUOBYTE"
DISCO = "DISCO"
VZSTORAGE = "VZSTORAGE"
SMBFS = "SMBFS"
NVMEOF = "NVMEOF"
NBD = "NBD"
CEPHFS = "CEPHFS"

VOLUME_LINK_DIR = "/dev/disk/by-id/"

_TYPE_KEYS = ("driverVolumeType", "driver_volume_type")
_TYPE_FIX = 'for example "ISCSI"'
_ID_KEYS = ("volumeId", "volume_id", "serial")


class Platform(StrEnum):
    ALL = PLATFORM_ALL
    X86 = PLATFORM_x86
    S390 = PLATFORM_S390
    PPC64 = PLATFORM_PPC64
    AARCH64 = PLATFORM_AARCH64


class OsType(StrEnum):
    ALL = OS_TYPE_ALL
    LINUX = OS_TYPE_LINUX
    WINDOWS = OS_TYPE_WINDOWS


class DriverType(StrEnum):
    ISCSI = ISCSI
    ISER = ISER
    FIBRE_CHANNEL = FIBRE_CHANNEL
    AOE = AOE
    DRBD = DRBD
    NFS = NFS
    GLUSTERFS = GLUSTERFS
    LOCAL = LOCAL
    GPFS = GPFS
    HUAWEISDSHYPERVISOR = HUAWEISDSHYPERVISOR
    HGST = HGST
    RBD = RBD
    SCALEIO = SCALEIO
    SCALITY = SCALITY
    QUOBYTE = QUOBYTE
    DISCO = DISCO
    VZSTORAGE = VZSTORAGE
    SMBFS = SMBFS
    NVMEOF = NVMEOF
    NBD = NBD
    CEPHFS = CEPHFS


class AccessMode(StrEnum):
    """How a volume may be used, in the words of connection information."""

    READ_WRITE = "rw"
    READ = "ro"


_MACHINES = {
    "x86_64": Platform.X86,
    "i386": Platform.X86,
    "i686": Platform.X86,
    "um": Platform.X86,
    "s390": Platform.S390,
    "s390x": Platform.S390,
    "ppc64": Platform.PPC64,
    "ppc64le": Platform.PPC64,
    "aarch64": Platform.AARCH64,
    "arm64": Platform.AARCH64,
}


def platform_of(machine: str) -> Platform:
    """The platform of what `uname -m` says; one that no driver names has the drivers for all platforms."""
    return _MACHINES.get(machine, Platform.ALL)


class ConnectorProperties(msgspec.Struct, frozen=True, rename="camel"):
    """About this host, for a storage system that wants to know whom it exports to. The first seven are always there."""

    do_local_attach: bool
    platform: str
    os_type: str
    ip: str
    host: str
    multipath: bool
    initiator: str
    wwpns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    wwnns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    nqn: str | msgspec.UnsetType = msgspec.UNSET
    nvme_host_id: str | msgspec.UnsetType = msgspec.UNSET
    sdc_guid: str | msgspec.UnsetType = msgspec.UNSET

    def to_map(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_map(cls, document: Mapping[str, Any]) -> ConnectorProperties:
        try:
            return msgspec.convert(document, cls)
        except msgspec.ValidationError as error:
            raise ConnectionDataError(f"cannot read connector properties: {error}") from error


class ConnectionInfo:
    """What a storage system says about one volume: which driver, and that driver's `data`.

    Keys that nobody here knows are kept and come out again. It never shows its data: there may be secrets in them.
    """

    __slots__ = ("_document", "_type_key")

    def __init__(self, driver_volume_type: str, data: Mapping[str, Any], **others: Any) -> None:
        document = {_TYPE_KEYS[0]: driver_volume_type, "data": data, **others}
        self._type_key = _type_key(document)
        self._document: dict[str, Any] = {**document, _TYPE_KEYS[0]: str(driver_volume_type), "data": dict(data)}

    @property
    def driver_volume_type(self) -> str:
        return str(self._document[self._type_key])

    @property
    def driver_type(self) -> str:
        """The type as drivers are registered: os-brick writes "iscsi" for what is ISCSI."""
        return normal_type(self.driver_volume_type)

    @property
    def data(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._document["data"]
        return found

    @property
    def others(self) -> Mapping[str, Any]:
        """What stands beside the type and the data, such as `serial`."""
        return {key: value for key, value in self._document.items() if key not in (self._type_key, "data")}

    def to_map(self) -> dict[str, Any]:
        return {**self._document, "data": dict(self.data)}

    def to_json(self) -> bytes:
        return msgspec.json.encode(self._document)

    @classmethod
    def from_map(cls, document: Mapping[str, Any]) -> ConnectionInfo:
        if not isinstance(document, Mapping):
            raise ConnectionDataError("cannot read connection information: it is not an object")
        made = cls.__new__(cls)
        made._type_key = _type_key(document)
        made._document = {**document, "data": dict(document["data"])}
        return made

    def mistyped_ids(self) -> list[Problem]:
        """What stands beside the data to name the volume, and is no name."""
        others = self.others
        wrong = [key for key in _ID_KEYS if not isinstance(others.get(key), str | int | None)]
        return [Problem(key, "must be text", 'for example "volume-1"') for key in wrong]

    @classmethod
    def from_json(cls, text: bytes | str) -> ConnectionInfo:
        if not isinstance(text, bytes | bytearray | str):
            raise ConnectionDataError("cannot read connection information: JSON is text or bytes")
        try:
            document = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConnectionDataError(f"cannot read connection information: it is not JSON: {error}") from error
        except RecursionError as error:
            raise ConnectionDataError("cannot read connection information: it is nested too deeply") from error
        # OpenStack wraps it once more in what its services send each other.
        inner = document.get("connection_info") if isinstance(document, dict) and "data" not in document else None
        return cls.from_map(inner if isinstance(inner, dict) else document)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConnectionInfo) and other._document == self._document

    __hash__ = None  # type: ignore[assignment]  # as every mapping

    def __repr__(self) -> str:
        return f"ConnectionInfo({self.driver_volume_type!r}, data with {', '.join(map(repr, self.data)) or 'nothing'})"


def _type_key(document: Mapping[str, Any]) -> str:
    """The key that names the driver. ConnectionDataError with all that is wrong with the document."""
    keys = [key for key in _TYPE_KEYS if key in document]
    problems = []
    if not keys:
        problems.append(Problem(_TYPE_KEYS[0], "is missing", _TYPE_FIX))
    elif not isinstance(document[keys[0]], str):
        problems.append(Problem(keys[0], "is not text", _TYPE_FIX))
    if not isinstance(document.get("data"), Mapping):
        what = "is not an object" if "data" in document else "is missing"
        problems.append(Problem("data", what, "it has the keys of the driver"))
    if problems:
        raise ConnectionDataError("cannot read connection information", problems)
    return keys[0]


# What Cinder's drivers say, where it is not the specification's name in lower case.
_OTHER_NAMES = {
    "FIBER_CHANNEL": FIBRE_CHANNEL,
    "FC": FIBRE_CHANNEL,
    "CIFS": SMBFS,
    "SMB": SMBFS,
    "NVME": NVMEOF,
    "CEPH": RBD,
    "FILE": LOCAL,
}


def normal_type(text: str) -> str:
    plain = text.strip().upper().replace("-", "_")
    return _OTHER_NAMES.get(plain, plain)


class Attachment(msgspec.Struct, frozen=True, rename="camel"):
    """A volume on this host. `path` is what to use; `device` is what the kernel calls it, empty for a file system."""

    volume_id: str
    driver_volume_type: str
    path: str
    device: str = ""
    identity: str = ""  # what the device itself says it is
    uri: bool = False  # `path` is for a program that opens the volume itself; nothing was attached
