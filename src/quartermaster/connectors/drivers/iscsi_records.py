"""The records of open-iscsi: one file per portal and target, which says how to log in, with the secret in it.

iscsiadm takes a secret only as an argument, where every user of the host can read it. So the file is written here, as
iscsiadm would: with what the administrator has set in iscsid.conf, and under iscsiadm's own lock. That lock is a name
that exists or not, so one that is left by a process which died would stop every iscsiadm; ours says whose it is, and
the next of us takes it away.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from quartermaster.connectors.context import Context
from quartermaster.connectors.driver import Roots
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.names import file_name
from quartermaster.host.procfs import process_stat

MARK = "# made by quartermaster"
_LOCK = "lock.write"
_OWNER = "quartermaster-"
_LOCK_S = 30.0  # as long as iscsiadm waits for it
_LOOK_S = 0.01
# iscsid goes on with a login when iscsiadm has died, so it must come to an end by itself, and soon.
_RETRIES, _LOGIN_S = 2, 5
LOGIN_ENDS_S = float((_RETRIES + 1) * _LOGIN_S)


class Target(msgspec.Struct, frozen=True):
    """One way to one target."""

    host: str
    port: int
    iqn: str
    interface: str = "default"

    @property
    def portal(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        own = "" if self.interface == "default" else f" {self.interface}"
        return f"{self.portal} {self.iqn}{own}"

    @property
    def thing(self) -> str:
        return f"session {self.name}"


def record_text(target: Target, configuration: str, *, username: str = "", password: str = "") -> str:
    """What the administrator wants for every node, and over it what this login needs."""
    values = _node_settings(configuration)
    values |= {
        "node.name": target.iqn,
        "node.tpgt": "-1",  # any
        "node.startup": "manual",  # else a host waits at boot for targets that are gone
        "node.conn[0].startup": "manual",
        "node.session.scan": "manual",  # else every LUN of the target appears
        "node.session.initial_login_retry_max": str(_RETRIES),
        "node.conn[0].timeo.login_timeout": str(_LOGIN_S),
        "node.discovery_type": "static",
        "iface.iscsi_ifacename": target.interface,
        "iface.transport_name": "tcp" if target.interface == "default" else target.interface,
        "node.conn[0].address": target.host,
        "node.conn[0].port": str(target.port),
    }
    if username:
        values |= {
            "node.session.auth.authmethod": "CHAP",
            "node.session.auth.username": username,
            "node.session.auth.password": password,
        }
    lines = [f"{key} = {value}" for key, value in values.items()]
    return "\n".join(["# BEGIN RECORD 2.1", MARK, *lines, "# END RECORD", ""])


async def put_record(context: Context, target: Target, *, username: str, password: str) -> None:
    """One that was there before us is kept aside, and comes back with `drop_record`."""
    files = context.files
    configuration = files.text(context.roots.etc / "iscsi/iscsid.conf")
    path = _path(context, target)
    async with _locked(context):
        there = files.data(path)
        if there and MARK.encode() not in there:
            files.write(_aside(context, target), there)
        text = record_text(target, configuration, username=username, password=password)
        files.write(path, text.encode())


def has_our_record(context: Context, target: Target) -> bool:
    return MARK.encode() in context.files.data(_path(context, target))


async def drop_record(context: Context, target: Target) -> None:
    files = context.files
    path, aside = _path(context, target), _aside(context, target)
    kept = files.data(aside)
    ours = has_our_record(context, target)
    if not ours and not kept and not _is_stale(_directory(context) / _LOCK):
        if not files.exists(path):
            files.remove_directory(path.parent)
        return
    async with _locked(context):
        if kept:
            files.write(path, kept)
            files.remove(aside)
        elif ours:
            files.remove(path)
        if not files.exists(path):
            files.remove_directory(path.parent)


def _node_settings(configuration: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in configuration.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip().startswith("node."):
            found[key.strip()] = value.strip()
    return found


def _path(context: Context, target: Target) -> Path:
    return _database(context) / "nodes" / target.iqn / f"{target.host},{target.port}"


def _database(context: Context) -> Path:
    """Distributions differ: /var/lib where it is there, else beside the configuration."""
    moved = _top(context.roots) / "var/lib/iscsi"
    return moved if context.files.exists(moved) else context.roots.etc / "iscsi"


def _directory(context: Context) -> Path:
    return _top(context.roots) / "run/lock/iscsi"


def _top(roots: Roots) -> Path:
    return roots.etc.parent


def _aside(context: Context, target: Target) -> Path:
    return context.directory / "iscsi" / file_name(target.name)


@asynccontextmanager
async def _locked(context: Context) -> AsyncIterator[None]:
    """Alone with the records: among us by a lock that dies with its holder, and among all by iscsiadm's."""
    path = _directory(context) / _LOCK
    async with context.locks.hold("iscsi records", timeout_s=context.left_s()):
        await _take(path, timeout_s=min(_LOCK_S, context.left_s()))
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)


async def _take(path: Path, *, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + timeout_s
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            # A link that leads nowhere: made in one step, with its owner in it, and iscsiadm's link() fails on it.
            os.symlink(_owner(), path)
        except FileExistsError:
            if _is_stale(path):
                with suppress(FileNotFoundError):
                    os.unlink(path)
                continue
        else:
            return
        if loop.time() >= ends:
            raise ConnectorError(
                f"cannot change the records of open-iscsi: {path} has been there for {timeout_s:.3g} s",
                hint="an iscsiadm is at work or has died; if none is running, remove the file",
            )
        await asyncio.sleep(_LOOK_S)


def _owner() -> str:
    own = process_stat(os.getpid())
    return f"{_OWNER}{os.getpid()}-{own.started if own is not None else 0}"


def _is_stale(path: Path) -> bool:
    """Ours, of a process that is no longer there."""
    try:
        owner = os.readlink(path)
    except OSError:
        return False
    pid, _, started = owner.removeprefix(_OWNER).partition("-")
    if not owner.startswith(_OWNER) or not pid.isdecimal():
        return False
    alive = process_stat(int(pid))
    return alive is None or not alive.lives or str(alive.started) != started
