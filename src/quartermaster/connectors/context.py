"""What a driver is given for one call about one volume: the host, a deadline, its notes, and shared things.

Every command is bounded by the call's deadline, refuses an argument list with one of the volume's secrets in it, and
carries the mark by which it is found if this process dies. A shared thing (a session that carries several volumes, a
mount of an export) is joined and left under a lock of its own; who uses it follows from the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from quartermaster.connectors.driver import Roots, Settings
from quartermaster.connectors.errors import NotAppearingError
from quartermaster.connectors.files import Files
from quartermaster.connectors.leftovers import VARIABLE, mark, wait_for_leftovers
from quartermaster.connectors.model import Platform
from quartermaster.connectors.records import Record, Records, State
from quartermaster.host.commands import Command, Commands, Result
from quartermaster.host.events import Changes, DeviceEvents, wait_until
from quartermaster.host.locks import Locks
from quartermaster.host.processes import kill_wait_s
from quartermaster.support.errors import DeadlineError

if TYPE_CHECKING:
    from quartermaster.host.mounts import Mounts

T = TypeVar("T")

_POLL_S = 0.25
_ENDING = 0.1  # of what is left of the call, between the signals that end a command


class Joined(msgspec.Struct, frozen=True):
    present: bool  # it was there before this call
    ours: bool  # made by this library, or about to be
    shared: bool = False  # another volume uses it


class Leaving(msgspec.Struct, frozen=True):
    last: bool  # no other volume uses it, as far as the records tell
    ours: bool | None  # None: there is no record that says who made it
    shared: bool = False  # a record says that another volume uses it


class Machine(msgspec.Struct, frozen=True):
    """The parts of this host that connecting needs."""

    commands: Commands
    mounts: Callable[[Commands], Mounts]
    events: DeviceEvents
    locks: Locks
    files: Files
    roots: Roots
    platform: Platform
    boot: str
    directory: Path  # of the library's own state


class Ledger:
    """The record of the volume in hand; every change is on the disk when the call returns.

    One that is not `written` yet says what is about to be done. Whoever changes the host calls `begin` before, and the
    first change of the record does as well: most volumes say what they share with others before anything else.
    """

    def __init__(self, records: Records, record: Record, *, boot: str, written: bool = True) -> None:
        self._records = records
        self._boot = boot
        self._written = written
        self.record = record

    def begin(self) -> None:
        if not self._written:
            self.change()

    def intend(self, **fields: object) -> None:
        """Goes to the disk with the next change of the record, or before the next change of the host."""
        self.record = msgspec.structs.replace(self.record, **fields)
        self._written = False

    def change(self, **fields: object) -> None:
        self.intend(**fields)
        self._records.put(self.record)
        self._written = True

    def users_of(self, thing: str) -> tuple[dict[str, Record], int]:
        users, damaged = self._records.users_of(thing, boot=self._boot, but=self.record.volume_id)
        return dict(users), damaged


class Context:
    """`caller_s` is what the caller still waits; less than `timeout_s` where something has to be taken back later."""

    def __init__(
        self,
        machine: Machine,
        settings: Settings,
        ledger: Ledger,
        *,
        timeout_s: float,
        caller_s: float | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.settings = settings
        self.roots = machine.roots
        self.platform = machine.platform
        self.files: Files = _RecordedFiles(machine.files, ledger.begin)
        self.events = machine.events
        self.locks = machine.locks
        self.directory = machine.directory
        self.timeout_s = timeout_s
        self._ledger = ledger
        now = asyncio.get_running_loop().time()
        self._ends = now + timeout_s
        self._caller_ends = now + (timeout_s if caller_s is None else caller_s)
        self._things = [ledger.record.volume_id]
        self._left_here: dict[str, None] = {}
        self._secrets = list(secrets)
        self.commands: Commands = _BoundCommands(
            machine.commands,
            machine.directory,
            left_s=self.left_s,
            things=self._things,
            secrets=self._secrets,
            begin=ledger.begin,
        )
        self._mounts = machine.mounts

    @property
    def mounts(self) -> Mounts:
        return self._mounts(self.commands)

    @property
    def volume_id(self) -> str:
        return self._ledger.record.volume_id

    @property
    def identity(self) -> str:
        """What the device said it was when the volume was connected; empty before that."""
        return self._ledger.record.identity

    @property
    def takes_back(self) -> bool:
        """Whether a connect is undone. What was here before it stays then, and nobody was ever told of the rest."""
        return self._ledger.record.state is State.CONNECTING

    @property
    def read_only(self) -> bool:
        """Whether the place of the volume says that it may only be read."""
        return bool(self._ledger.record.place.get("read_only"))

    @property
    def notes(self) -> dict[str, str]:
        return dict(self._ledger.record.notes)

    def note(self, **values: str) -> None:
        """Remember something for `find` and `detach`, before it is done. An empty value forgets it."""
        merged = {**self._ledger.record.notes, **values}
        kept = {key: value for key, value in merged.items() if value}
        if kept != self._ledger.record.notes:
            self._ledger.change(notes=kept)

    def uses(self, thing: str) -> bool:
        """Whether the volume has joined a shared thing and not left it: the thing alone may be here for others."""
        return thing in self._ledger.record.claims

    def leave_here(self, *things: str) -> None:
        """They stay though this volume goes: for others, or because they were here before it."""
        self._left_here |= dict.fromkeys(things)

    def is_left_here(self, thing: str) -> bool:
        return thing in self._left_here

    def hide(self, *secrets: str) -> None:
        """Texts that no argument list may hold and no error may show, beside the secrets of the data."""
        self._secrets.extend(secret for secret in secrets if secret)

    def left_s(self) -> float:
        """What is left of the call's time."""
        return max(0.0, self._ends - asyncio.get_running_loop().time())

    def caller_left_s(self) -> float:
        """The same, but for what is taken back after the time was up because somebody else did not answer."""
        return max(0.0, self._caller_ends - asyncio.get_running_loop().time())

    @asynccontextmanager
    async def joining(self, thing: str, *, present: Callable[[], Awaitable[bool]]) -> AsyncIterator[Joined]:
        """Alone with the shared thing, which this volume uses from now on. Make it inside if it is not present."""
        async with self._alone_with(thing):
            users, _ = self._ledger.users_of(thing)
            await self._settle(thing, users)
            there = await present()
            claims = self._ledger.record.claims
            # Whoever made it before: what is not there any more is made anew by us.
            ours = not there or claims.get(thing, False) or any(user.claims[thing] for user in users.values())
            if claims.get(thing) is not ours:
                self._ledger.change(claims={**claims, thing: ours})
            yield Joined(present=there, ours=ours, shared=bool(users))

    @asynccontextmanager
    async def awaiting(self, thing: str, *, present: Callable[[], bool]) -> AsyncIterator[Joined]:
        """As `joining`, for what appears while the block lasts, and seldom has another user.

        Nobody else sees it before the end of the block, so the claim goes to the disk together with the next one.
        """
        async with self._alone_with(thing):
            claims = self._ledger.record.claims
            there = present()
            users = self._ledger.users_of(thing)[0] if there else {}
            await self._settle(thing, users)
            if thing not in claims:
                ours = not there or any(user.claims[thing] for user in users.values())
                self._ledger.intend(claims={**claims, thing: ours})
            yield Joined(present=there, ours=self._ledger.record.claims[thing], shared=bool(users))

    @asynccontextmanager
    async def leaving(self, thing: str) -> AsyncIterator[Leaving]:
        """Alone with the shared thing, which this volume no longer uses. Take it down inside if it is the last."""
        async with self.leaving_all([thing]) as found:
            yield found[thing]

    @asynccontextmanager
    async def leaving_all(self, things: Sequence[str]) -> AsyncIterator[dict[str, Leaving]]:
        """The same of several at once."""
        async with AsyncExitStack() as alone:
            # In one order for everybody: two volumes that share several must not wait for each other.
            for thing in sorted(things):
                await alone.enter_async_context(self._alone_with(thing))
            yield {thing: await self._left(thing) for thing in things}
            claims = {key: ours for key, ours in self._ledger.record.claims.items() if key not in things}
            if claims != self._ledger.record.claims:
                self._ledger.change(claims=claims)

    def watch(self, *directories: Path) -> AbstractAsyncContextManager[Changes]:
        """Enter it before what makes the device appear: nothing that happens inside the block is missed."""
        return self.events.watch(directories=directories)

    async def until(
        self,
        look: Callable[[], Awaitable[T | None]],
        changes: Changes,
        *,
        what: str,
        hint: str = "",
        most_s: float = 0.0,
    ) -> T:
        """What `look` finds, looking after every change until the call's time is up (or `most_s`)."""
        timeout_s = min(self.left_s(), most_s or self.left_s())
        found = await wait_until(look, changes, timeout_s=timeout_s, poll_s=_POLL_S)
        if found is None:
            raise NotAppearingError(f"cannot wait for {what}: it did not happen within {timeout_s:.3g} s", hint=hint)
        return found

    async def write_attribute(self, path: Path, text: str, *, verb: str) -> None:
        """Write to an attribute of sysfs. Where a storage system does not answer, a child waits for it."""
        await self.commands.run(Command(("tee", str(path)), verb=verb, stdin=text.encode()))

    @asynccontextmanager
    async def _alone_with(self, thing: str) -> AsyncIterator[None]:
        async with self.locks.hold(f"shared {thing}", timeout_s=self.left_s()):
            self._things.append(thing)
            try:
                yield
            finally:
                self._things.remove(thing)

    async def _left(self, thing: str) -> Leaving:
        users, damaged = self._ledger.users_of(thing)
        await self._settle(thing, users)
        # A connect claims before it makes: without a claim it has made nothing, or has taken that back already.
        ours = self._ledger.record.claims.get(thing, False if self.takes_back else None)
        return Leaving(last=not users and not damaged, ours=ours, shared=bool(users))

    async def _settle(self, thing: str, users: dict[str, Record]) -> None:
        """A user that has not finished may have died; the program that it had started may be at work on the thing."""
        if any(user.state is not State.CONNECTED for user in users.values()):
            await wait_for_leftovers(self.directory, thing, timeout_s=self.left_s(), what=thing)


class _BoundCommands:
    def __init__(
        self,
        commands: Commands,
        directory: Path,
        *,
        left_s: Callable[[], float],
        things: Sequence[str],
        secrets: Sequence[str],
        begin: Callable[[], None],
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._left_s = left_s
        self._things = things
        self._secrets = secrets
        self._begin = begin

    async def run(self, command: Command) -> Result:
        left_s = self._left_s()
        if left_s <= 0:
            raise DeadlineError(f"cannot {command.verb}: the time for the call is up")
        environment = command.environment
        if command.changes:
            self._begin()
            environment = {**environment, VARIABLE: mark(self._directory, self._things, command.argv)}
        timeout_s, grace_s = _share(command, left_s)
        return await self._commands.run(
            msgspec.structs.replace(
                command,
                timeout_s=timeout_s,
                grace_s=grace_s,
                environment=environment,
                secrets=tuple(dict.fromkeys((*command.secrets, *self._secrets))),
            )
        )


def _share(command: Command, left_s: float) -> tuple[float, float]:
    """The time of a command, and that for ending it: one that hangs is given up, and the call has kept its own."""
    grace_s = min(command.grace_s, left_s * _ENDING)
    ending_s = grace_s + kill_wait_s(grace_s)
    return min(command.timeout_s, max(left_s - ending_s, left_s / 2)), grace_s


class _RecordedFiles:
    """The host's files; whoever changes one finds the volume's record on the disk."""

    def __init__(self, files: Files, begin: Callable[[], None]) -> None:
        self.text, self.data, self.names = files.text, files.data, files.names
        self.exists, self.leads_to, self.age_s = files.exists, files.leads_to, files.age_s
        self._files = files
        self._begin = begin

    def write(self, path: Path, data: bytes, *, lasting: bool = True) -> None:
        self._begin()
        self._files.write(path, data, lasting=lasting)

    def remove(self, path: Path) -> None:
        self._begin()
        self._files.remove(path)

    def link(self, path: Path, target: str) -> None:
        self._begin()
        self._files.link(path, target)

    def make_directory(self, path: Path) -> None:
        self._begin()
        self._files.make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._begin()
        self._files.remove_directory(path)
