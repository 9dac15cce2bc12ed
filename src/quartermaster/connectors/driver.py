"""What a driver is. It knows one protocol; records, locks, links, recovery and deadlines are the connector's.

A driver says three things about a volume, and each stands on its own:

- `identify` turns the data of the storage system into a *place*: what to look for on this host, without a secret. It
  goes into the record before anything is changed, and is all that `find` and `detach` ever get.
- `attach` brings it here; `find` looks whether it is here, and changes nothing.
- `detach` takes away whatever is here of the place: all of it, half of it after a crash, or nothing. Rolling a connect
  back and finishing a disconnect are the same work, so a driver that gets `detach` right recovers from every crash.

Each may be called twice, and after any of the others ended in the middle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import msgspec

from quartermaster.connectors.model import Platform

if TYPE_CHECKING:
    from quartermaster.connectors.context import Context
    from quartermaster.connectors.files import Files

KERNEL = "kernel"
USERSPACE = "userspace"

P = TypeVar("P", bound=msgspec.Struct)
D_contra = TypeVar("D_contra", bound=msgspec.Struct, contravariant=True)
P_contra = TypeVar("P_contra", bound=msgspec.Struct, contravariant=True)


class Roots(msgspec.Struct, frozen=True):
    """Where the kernel and the system keep their files; tests move them."""

    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    etc: Path = Path("/etc")
    modules: Path = Path("/lib/modules", os.uname().release)


class Settings(msgspec.Struct, frozen=True):
    """What was chosen when the connector was made."""

    multipath: bool = False
    do_local_attach: bool = True
    clients: Mapping[str, str] = {}  # driver type → kernel, userspace or container:IMAGE
    mount_directory: Path = Path("/run/quartermaster/mounts")
    host: str = ""  # this host's name towards storage systems; its own where empty
    ip: str = ""
    initiator: str = ""  # the iSCSI name; what initiatorname.iscsi says where empty
    timeout_s: float = 120.0  # of one call, unless it brings its own
    rollback_timeout_s: float = 30.0  # to take back what a failed call has begun, after its own time is up


class Found(msgspec.Struct, frozen=True):
    """A volume that is here. A block device has `device`; what is mounted, or is a plain file, has a `path`."""

    device: str = ""
    path: str = ""
    identity: str = ""  # read live from the device; compared at every later call


class Foreign(msgspec.Struct, frozen=True, rename="camel"):
    """Something on this host that may be a volume, and that this library did not attach."""

    driver: str
    kind: str  # session, device, map, mount
    name: str
    path: str = ""


class Route(msgspec.Struct, frozen=True):
    """What a driver serves. `data` and `place` are frozen structs of its own; a place has no secret in it."""

    driver_type: str
    data: type[msgspec.Struct]
    place: type[msgspec.Struct]
    client: str = KERNEL
    platforms: tuple[Platform, ...] = (Platform.ALL,)
    aliases: Mapping[str, str] = {}  # keys of the data that differ from a field by more than case and underscores


class Driver(Protocol[D_contra, P]):
    @property
    def route(self) -> Route: ...

    def identify(self, data: D_contra, settings: Settings) -> P:
        """Pure: the same volume is the same place, however its data are written."""
        ...

    async def attach(self, context: Context, data: D_contra, place: P) -> Found:
        """The volume is here when this returns. It is called with nothing of the volume here, or all of it.

        Raise a typed error; what was begun is then taken back by `detach`.
        """
        ...

    async def find(self, context: Context, place: P) -> Found | None:
        """What is here now, without changing anything. IdentityMismatchError where another volume is in its place."""
        ...

    async def detach(self, context: Context, place: P, *, force: bool) -> None:
        """Nothing of the place is here when this returns. `force` gives up data that cannot be flushed."""
        ...


@runtime_checkable
class Growing(Protocol[P_contra]):
    """A driver whose volumes may become larger while they are attached."""

    async def extend(self, context: Context, place: P_contra) -> None:
        """The host sees the volume's present size when this returns."""
        ...


@runtime_checkable
class Breaking(Protocol[P_contra]):
    """A driver whose attachments may be here and yet of no use: a mount whose server has forgotten it."""

    async def broken(self, context: Context, place: P_contra) -> bool:
        """Whether it has to be made anew, which `attach` then does. One that is merely slow is not broken."""
        ...


@runtime_checkable
class Answering(Protocol[P_contra]):
    """A driver that can tell whether a storage system is still behind what is here."""

    async def away(self, context: Context, place: P_contra) -> str:
        """Why it is of no use for now, in words that complete "it is here, but …". Empty where nothing says so."""
        ...


@runtime_checkable
class Needing(Protocol):
    """A driver that not every kernel can serve. Where nobody has chosen a client, the next one is taken then."""

    def usable(self, roots: Roots, files: Files) -> bool:
        """The same answer as long as this kernel runs: a volume must not change its client between two calls."""
        ...


@runtime_checkable
class Opening(Protocol[D_contra]):
    """A driver whose volumes a program can open itself."""

    def uri(self, data: D_contra) -> str:
        """Without a secret."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A driver that can tell what is on this host of its kind, whoever attached it."""

    async def foreign(self, context: Context) -> Sequence[Foreign]:
        """Everything of the kind, ours included. The connector takes out what a record has as its path or device, or as
        a shared thing that is called "<kind> <name>" or "<kind> <path>"."""
        ...
