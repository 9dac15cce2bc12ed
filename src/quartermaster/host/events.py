"""Something about the devices has changed: noticed when it happens, not at the next look.

Three sources flow together: the kernel's own messages (netlink, and udev's after it has made its links), inotify on
directories that the caller names (sysfs has no inotify, a device root has), and a slow poll for what neither tells. A
change is a hint to look again and says little more; any number of them that nobody has taken yet are one.

Whoever watches the same directories at the same time shares one source: of a hundred that wait for a device each, all
are told of every device, and none of them should have to read and judge the messages anew.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from quartermaster.host.inotify import Inotify, borrow, give_back
from quartermaster.support.deadlines import within

T = TypeVar("T")

_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_AND_UDEV = 1 | 2
_RECEIVE_BUFFER = 1 << 20
_MESSAGE = 16384
_NAMES = 256


class Change(msgspec.Struct, frozen=True):
    """What changed, as far as it is known. Without names: look at everything."""

    names: tuple[str, ...] = ()


class Changes(Protocol):
    """Endless: the poll gives a change at the latest."""

    def __aiter__(self) -> AsyncIterator[Change]: ...

    async def wait(self, timeout_s: float) -> Change | None:
        """The changes since the last call, or None when the time is up."""
        ...


class DeviceEvents(Protocol):
    def watch(self, *, directories: Sequence[Path] = ()) -> AbstractAsyncContextManager[Changes]:
        """Nothing that happens after the block was entered is missed."""
        ...


class HostEvents:
    def __init__(self, *, poll_s: float = 60.0, subsystems: Sequence[str] = ("block",)) -> None:
        self._poll_s = poll_s
        self._subsystems = tuple(subsystems)
        self._sources: dict[tuple[asyncio.AbstractEventLoop, tuple[Path, ...]], _Source] = {}

    @asynccontextmanager
    async def watch(self, *, directories: Sequence[Path] = ()) -> AsyncIterator[Changes]:
        pending = PendingChanges(self._poll_s)
        key = (asyncio.get_running_loop(), tuple(directories))
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(*key, self._subsystems)
        source.listeners[pending] = None
        try:
            yield pending
        finally:
            del source.listeners[pending]
            if not source.listeners:
                del self._sources[key]
                source.close()


class _Source:
    """What the kernel tells, read once for all who listen."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directories: Sequence[Path], subsystems: Sequence[str]) -> None:
        self.listeners: dict[PendingChanges, None] = {}
        self._loop = loop
        self._directories = directories
        self._subsystems = subsystems
        self._netlink = _open_netlink()
        self._inotify = _open_inotify(directories)
        if self._netlink is not None:
            loop.add_reader(self._netlink.fileno(), self._on_netlink, self._netlink)
        if self._inotify is not None:
            loop.add_reader(self._inotify.fd, self._on_inotify, self._inotify)

    def close(self) -> None:
        if self._netlink is not None:
            self._loop.remove_reader(self._netlink.fileno())
            self._netlink.close()
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fd)
            give_back(self._inotify)

    def _tell(self, *names: str) -> None:
        for listener in self.listeners:
            listener.add(*names)

    def _on_inotify(self, inotify: Inotify) -> None:
        self._tell(*_devices(inotify.read(), self._directories))

    def _on_netlink(self, netlink: socket.socket) -> None:
        try:
            message = netlink.recv(_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            # ENOBUFS: messages were lost.
            self._tell("")
            return
        values = parse_uevent(message)
        if values.get("SUBSYSTEM") in self._subsystems:
            self._tell(values.get("DEVNAME", values.get("DEVPATH", "")).removeprefix("/dev/"))


class PendingChanges:
    """Changes that nobody has taken yet: bounded, since past some number only "look at everything" is worth saying."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._names: dict[str, None] = {}
        self._all = False
        self._there = asyncio.Event()

    def add(self, *names: str) -> None:
        """An empty name: anything may have changed."""
        if not names:
            return
        self._names.update(dict.fromkeys(names))
        self._all = self._all or "" in self._names or len(self._names) > _NAMES
        if self._all:
            self._names.clear()
        self._there.set()

    async def wait(self, timeout_s: float) -> Change | None:
        with suppress(TimeoutError):
            async with within(timeout_s):
                await self._there.wait()
        if not self._there.is_set():
            return None
        change = Change(tuple(self._names))
        self._names.clear()
        self._all = False
        self._there.clear()
        return change

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            yield await self.wait(self._poll_s) or Change()


async def wait_until(
    look: Callable[[], Awaitable[T | None]], changes: Changes, *, timeout_s: float, poll_s: float = 0.5
) -> T | None:
    """What `look` finds, looking now and after every change; None when the time is up."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    while True:
        found = await look()
        left_s = ends - loop.time()
        if found is not None or left_s <= 0:
            return found
        await changes.wait(min(poll_s, left_s))


def parse_uevent(message: bytes) -> dict[str, str]:
    """The properties in a message of the kernel, or of udev, whose header says where they begin."""
    body = message
    if message.startswith(b"libudev\0") and len(message) >= 24:
        start, length = struct.unpack_from("=II", message, 16)
        body = message[start : start + length]
    parts = (part.decode(errors="replace").partition("=") for part in body.split(b"\0"))
    return {key: value for key, equals, value in parts if equals}


def _open_netlink() -> socket.socket | None:
    """None where the host does not allow it: the poll remains."""
    found = None
    try:
        flags = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        found = socket.socket(socket.AF_NETLINK, flags, _NETLINK_KOBJECT_UEVENT)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        found.bind((0, _KERNEL_AND_UDEV))
    except OSError:
        if found is not None:
            found.close()
        return None
    return found


def _devices(names: Iterable[str], directories: Sequence[Path]) -> list[str]:
    """Without character devices: whoever looks at a disk writes to /dev/null, and would be told to look again."""
    once = dict.fromkeys(names)
    return [name for name in once if not name or not any((base / name).is_char_device() for base in directories)]


def _open_inotify(directories: Sequence[Path]) -> Inotify | None:
    if not directories:
        return None
    try:
        found = borrow()
    except OSError:
        return None
    for directory in directories:
        # One that is not there yet is left to the poll.
        with suppress(OSError):
            found.watch(directory)
    return found
