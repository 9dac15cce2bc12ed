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
    return _text(values)


def discovery_text(target: Target, *, username: str, password: str) -> str:
    """How to ask a portal for its targets, with a secret."""
    values = {
        "discovery.startup": "manual",
        "discovery.type": "sendtargets",
        "discovery.sendtargets.address": target.host,
        "discovery.sendtargets.port": str(target.port),
        "discovery.sendtargets.auth.authmethod": "CHAP",
        "discovery.sendtargets.auth.username": username,
        "discovery.sendtargets.auth.password": password,
    }
    return _text(values)


def _text(values: dict[str, str]) -> str:
    lines = [f"{key} = {value}" for key, value in values.items()]
    return "\n".join(["# BEGIN RECORD 2.1", MARK, *lines, "# END RECORD", ""])


class RecordFile(msgspec.Struct, frozen=True):
    """Of open-iscsi. One that was there before us is kept aside, and comes back when ours goes."""

    path: Path
    aside: Path


def node_file(context: Context, target: Target) -> RecordFile:
    path = _database(context) / "nodes" / target.iqn / f"{target.host},{target.port}"
    return RecordFile(path, context.directory / "iscsi" / file_name(target.name))


def discovery_file(context: Context, target: Target) -> RecordFile:
    path = _database(context) / "send_targets" / f"{target.host},{target.port}" / "st_config"
    return RecordFile(path, context.directory / "iscsi" / file_name(f"discovery {target.portal}"))


async def put_record(context: Context, target: Target, *, username: str, password: str) -> None:
    configuration = context.files.text(context.roots.etc / "iscsi/iscsid.conf")
    text = record_text(target, configuration, username=username, password=password)
    await put_file(context, node_file(context, target), text)


async def put_file(context: Context, file: RecordFile, text: str) -> None:
    files = context.files
    async with _locked(context):
        there = files.data(file.path)
        if there and MARK.encode() not in there:
            files.write(file.aside, there)
        # As iscsiadm does: no session outlives a power cut, so nothing is lost with the record of one.
        files.write(file.path, text.encode(), lasting=False)


def has_our_record(context: Context, target: Target) -> bool:
    return _is_ours(context, node_file(context, target))


def _is_ours(context: Context, file: RecordFile) -> bool:
    """An empty one is what a power cut leaves of ours."""
    there = context.files.data(file.path)
    return MARK.encode() in there or (not there and context.files.exists(file.path))


async def drop_record(context: Context, target: Target) -> None:
    await drop_file(context, node_file(context, target))


async def drop_file(context: Context, file: RecordFile) -> None:
    files = context.files
    path, aside = file.path, file.aside
    kept = files.data(aside)
    ours = _is_ours(context, file)
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


def _database(context: Context) -> Path:
    """Distributions differ: /var/lib where it is there, else beside the configuration."""
    moved = _top(context.roots) / "var/lib/iscsi"
    return moved if context.files.exists(moved) else context.roots.etc / "iscsi"


def _directory(context: Context) -> Path:
    return _top(context.roots) / "run/lock/iscsi"


def _top(roots: Roots) -> Path:
    return roots.etc.parent


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
