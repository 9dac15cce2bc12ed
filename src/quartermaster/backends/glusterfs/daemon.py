"""glusterd on one host: its settings, its start, and who it is in the pool.

It keeps its state in the agent's own directory, so that nothing of it is in the way of another cluster later. Where a
glusterd runs that somebody else started, that one is used and left to him, also while it is down: one of ours in its
place would know of no pool and no brick.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.encryption import refuse_plain, secure, unsecure
from quartermaster.backends.glusterfs.model import Peer
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.backends.glusterfs.torn import set_aside, torn_records
from quartermaster.host import Command, Daemon, Host
from quartermaster.host.files import write_whole
from quartermaster.support import clock
from quartermaster.support.errors import CommandError, HostError
from quartermaster.support.tasks import TaskGroup

DAEMON = "glusterd"
_STATE = "glusterd"
_RECORD = "glusterd.json"
_SETTINGS = "glusterd.vol"
_ASIDE = "removed"
_REFUSED = "state=6"  # of a peer: rejected
_STUCK = "begun-again.json"
_APART_S, _SELDOM_S = 600.0, 3_600.0  # between two ends of a glusterd for any brick, and at most for the same one
SOCKET_DIRECTORY, SOCKET = "/var/run", "glusterd.socket"
_START_S = 60.0
# After so long a host that was cut off is given up by the others. Keeping alive alone does not do that while something
# that was sent to it is under way: then a change of the pool, or a look, would hang for ten minutes.
_UNREACHED_S = 12
_SOCKET_S = 1.0
_LOOK_S = 0.05
_VERSION_S = 10.0


Written: TypeAlias = tuple[tuple[str, int], ...]  # directory of a volume, and when it was last written to, in ns


class Identity(msgspec.Struct, frozen=True):
    """By which the pool knows this host."""

    uuid: str
    version: str
    own: bool = True  # started by us


def settings_text(directory: Path, address: str) -> str:
    """What glusterd reads; `address` "" listens on all of them."""

    def lines() -> Iterator[str]:
        yield "volume management"
        yield "    type mgmt/glusterd"
        options = {
            "working-directory": str(directory / _STATE),
            "transport-type": "socket",
            "transport.socket.keepalive-time": "10",
            "transport.socket.keepalive-interval": "2",
            "transport.tcp-user-timeout": str(_UNREACHED_S),
            "transport.socket.read-fail-log": "off",
            "transport.socket.listen-port": "24007",
            "ping-timeout": "0",
            "event-threads": "1",
            "max-port": "60999",
        }
        if address:
            options["transport.socket.bind-address"] = address
        for name, value in options.items():
            yield f"    option {name} {value}"
        yield "end-volume"

    return "".join(f"{line}\n" for line in lines())


async def ensure_glusterd(context: AgentContext, address: str, *, tls: bool = False) -> Identity:
    """Running and answering. Where it runs already, nothing is asked of it."""
    machine, record = context.machine, context.directory / _RECORD
    known = recorded_identity(context.directory)
    running = (await machine.daemons.status(DAEMON)).running
    if running and known is not None and known.own:
        return known
    theirs = "" if running else await _foreign_uuid(machine)
    if not running and not theirs and _is_theirs(context, known):
        raise HostError(
            "cannot use the glusterd of this host: it was started by somebody else, and does not answer",
            hint="start it, for example with `systemctl start glusterd.service`; none is started in its place",
        )
    if tls:
        await (refuse_plain if theirs else secure)(machine)
    if theirs:
        found = Identity(theirs, await _version(machine), own=False)
    else:
        await _start(context, address)
        async with TaskGroup() as group:
            uuid, version = group.start(_answering(context)), group.start(_version(machine))
        found = Identity(uuid.result(), version.result())
    if found != known:
        write_whole(record, msgspec.json.encode(found))
    return found


def _is_theirs(context: AgentContext, known: Identity | None) -> bool:
    """By what was found before; of a host that was just adopted with directories of somebody, by these."""
    return not known.own if known is not None else bool(context.desired.get("adopted"))


def recorded_identity(directory: Path) -> Identity | None:
    """Who the glusterd of this host was when it was last asked; `directory` is that of the node's agent."""
    record = directory / _RECORD
    return msgspec.json.decode(record.read_bytes(), type=Identity) if record.exists() else None


def refused_by_glusterd(directory: Path) -> list[str]:
    """The UUIDs of the peers with which the glusterd that we started has fallen out, as it has written them down.
    Whoever speaks for the pool hears only of those that his own refuses.
    """
    try:
        records = sorted((directory / _STATE / "peers").iterdir())
        return [record.name for record in records if _REFUSED in record.read_text().split()]
    except OSError:
        return []


def written_by_glusterd(directory: Path) -> Written | None:
    """What the glusterd that we started has written of volumes: every change of one replaces a file in its directory.
    Only whether that is as before means anything. None where there is nothing to be seen.
    """
    try:
        with os.scandir(directory / _STATE / "vols") as found:
            return tuple(sorted((one.name, one.stat().st_mtime_ns) for one in found))
    except OSError:
        return None


class _End(msgspec.Struct, frozen=True):
    """Of a glusterd, for the sake of a brick."""

    at: float  # by the clock of the host
    pause_s: float  # until it is ended for the same brick again


def does_not_start(context: AgentContext, stuck: Sequence[str]) -> list[str]:
    """Of these bricks those for which the glusterd is to be ended, for it takes them for ones that are being started:
    the next one starts them. Less and less often for the same brick: one that does not run even so has another trouble.
    Nor twice in a short time: the next one starts all of them.
    """
    identity, ends, now = recorded_identity(context.directory), _ends(context), clock.wall_time()
    if identity is None or not identity.own or any(0.0 <= now - end.at < _APART_S for end in ends.values()):
        return []
    return [brick for brick in stuck if brick not in ends or not 0.0 <= now - ends[brick].at < ends[brick].pause_s]


async def begin_again(context: AgentContext, stuck: Sequence[str]) -> None:
    """End the glusterd for the sake of these bricks. Those that run go on."""
    await context.report(f"starting glusterd again, for it does not start {stuck[0]}")
    await context.machine.daemons.stop(DAEMON)
    now = clock.wall_time()
    recent = {brick: end for brick, end in _ends(context).items() if 0.0 <= now - end.at < 2 * end.pause_s}
    pauses = {brick: min(2 * recent[brick].pause_s, _SELDOM_S) if brick in recent else _APART_S for brick in stuck}
    ends = {**recent, **{brick: _End(now, pause_s) for brick, pause_s in pauses.items()}}
    write_whole(context.directory / _STUCK, msgspec.json.encode(ends))


def _ends(context: AgentContext) -> dict[str, _End]:
    """By the brick for which the glusterd was ended."""
    record = context.directory / _STUCK
    return msgspec.json.decode(record.read_bytes(), type=dict[str, _End]) if record.exists() else {}


async def end_glusterd(context: AgentContext) -> tuple[str, ...]:
    """Stopped, and its state set aside: the next pool must not take this host for a member of the last one. The UUIDs
    of it and of all that were ended here before; none where it was somebody else's, or is forgotten already.
    """
    await context.machine.daemons.stop(DAEMON)
    identity = recorded_identity(context.directory)
    if identity is None or not identity.own:
        return ()
    state, aside = context.directory / _STATE, context.directory / _ASIDE
    aside.mkdir(exist_ok=True, mode=0o700)
    if state.exists() and not (aside / identity.uuid).exists():
        state.rename(aside / identity.uuid)
    return (identity.uuid, *sorted(one.name for one in aside.iterdir() if one.name != identity.uuid))


async def forget_glusterd(context: AgentContext) -> None:
    """When nothing that it started runs any more: to ask the pool of that may take TLS."""
    await unsecure(context.machine)
    for name in (_STUCK, _RECORD):
        (context.directory / name).unlink(missing_ok=True)


async def _start(context: AgentContext, address: str) -> None:
    settings = context.directory / _SETTINGS
    (context.directory / _STATE).mkdir(parents=True, exist_ok=True, mode=0o755)
    text = settings_text(context.directory, address).encode()
    if not settings.exists() or settings.read_bytes() != text:
        write_whole(settings, text, mode=0o644)
    daemon = Daemon(
        DAEMON,
        argv=("glusterd", "--no-daemon", "--volfile", str(settings)),
        # Bricks serve on while glusterd is started again.
        keep_children=True,
    )
    await context.machine.daemons.ensure(daemon)


async def _answering(context: AgentContext) -> str:
    """Its UUID, when it is ready to be asked; it makes one up at the first question."""
    machine, loop = context.machine, asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            if await _listens(machine) or loop.time() - began >= _SOCKET_S:
                return _own_uuid(await Gluster(machine.commands).pool())
        except CommandError:
            if loop.time() - began >= _START_S:
                raise
        if not (await machine.daemons.status(DAEMON)).running:
            raise await _ended_again(context)
        await asyncio.sleep(_LOOK_S)


async def _ended_again(context: AgentContext) -> HostError:
    state, known = context.directory / _STATE, recorded_identity(context.directory)
    if torn := torn_records(state):
        await set_aside(context, state, torn, known.uuid if known is not None else "")
        return HostError(
            f"cannot start glusterd: what it has written of {', '.join(torn)} is not complete, as after a sudden end",
            hint="it is started without that, and takes it from its peers",
        )
    tail = " ".join((await context.machine.daemons.logs(DAEMON, lines=3)).split())
    why = tail or "it does not say why"
    return HostError(f"cannot start glusterd: it ended again: {why}", hint="look at /var/log/glusterfs/glusterd.log")


async def _listens(machine: Host) -> bool:
    """Whether a glusterd may be there to be asked. gluster itself takes seconds to find out that there is none."""
    return SOCKET in await machine.directories.entries(SOCKET_DIRECTORY)


async def _foreign_uuid(machine: Host) -> str:
    """Of a glusterd that somebody else runs here; "" where there is none."""
    if not await _listens(machine):
        return ""
    try:
        return _own_uuid(await Gluster(machine.commands).pool())
    except CommandError:
        return ""


def _own_uuid(peers: tuple[Peer, ...]) -> str:
    found = next((one.uuid for one in peers if one.local), "")
    if not found:
        raise HostError("cannot ask glusterd who it is: it does not list itself in its pool")
    return found


async def _version(machine: Host) -> str:
    shown = await machine.commands.run(
        Command(("gluster", "--version"), verb="ask gluster for its version", timeout_s=_VERSION_S, changes=False)
    )
    words = shown.text.split()
    return words[1] if len(words) > 1 else ""
