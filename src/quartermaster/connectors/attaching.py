"""Connecting, disconnecting and recovering one volume, the same way for every driver.

A call holds the lock of its volume from beginning to end, so ten processes that connect one volume attach it once. The
order on the disk is: the record that says "connecting", the host, the link, the record that says "connected"; and back
again in the opposite order. The first is written when something is about to change the host (see `Ledger`). Whoever
finds a record that is not "connected", with the lock free, has found the work of a process that died: it waits for the
programs that it left behind, and takes everything away. What was connected before, and is only made anew, it leaves:
somebody was told of it and may have it in use.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from quartermaster.connectors.context import Context, Ledger, Machine
from quartermaster.connectors.driver import Answering, Breaking, Found, Growing, Settings
from quartermaster.connectors.errors import (
    AttachmentConflictError,
    ConnectorError,
    IdentityMismatchError,
    LeftoverError,
    NotAttachedError,
    RecordDamagedError,
    UnreachableError,
    VolumeBusyError,
)
from quartermaster.connectors.identity import device_directory, require_identity, same_identity
from quartermaster.connectors.leftovers import at_work_for, wait_for_leftovers
from quartermaster.connectors.links import Links
from quartermaster.connectors.model import Attachment
from quartermaster.connectors.records import MOUNT_NOTE, Record, Records, State
from quartermaster.connectors.registry import AnyDriver, blame
from quartermaster.connectors.secret import secrets_in
from quartermaster.connectors.sizes import size_of
from quartermaster.connectors.usage import refuse_if_open, refuse_if_used
from quartermaster.host.starting import until_started
from quartermaster.support.errors import DeadlineError, MountBusyError, QuartermasterError
from quartermaster.support.log import logger

log = logger("connectors")


class Attaching:
    """`driver_of` is the driver that a record names, whatever is chosen today."""

    def __init__(self, machine: Machine, settings: Settings, driver_of: Callable[[Record], AnyDriver]) -> None:
        self._machine = machine
        self._settings = settings
        self._driver_of = driver_of
        self.records = Records(machine.directory / "attachments", machine.files)
        self.links = Links(machine.roots.dev, machine.files)

    async def connect(
        self, volume_id: str, driver: AnyDriver, data: msgspec.Struct, place: msgspec.Struct, *, timeout_s: float
    ) -> Attachment:
        fresh = self._new_record(volume_id, driver, place, State.CONNECTING)
        async with self.alone(volume_id, "connect", timeout_s) as left_s:
            record = self.records.get(volume_id)
            if record is not None and record.state is not State.CONNECTED:
                # Of a process that died, and perhaps with other data: begin from nothing.
                record = await self._clear(record, left_s)
            if record is not None:
                self._refuse_difference(record, fresh)
                # After a boot everything is made anew: whatever is here then was made by somebody else.
                if record.boot == self._machine.boot:
                    present = await self._present(record, timeout_s=left_s())
                    if present is not None and not await self._is_broken(driver, record, timeout_s=left_s()):
                        return present
            return await self._attach(driver, record or fresh, data, timeout_s=left_s())

    async def disconnect(
        self, volume_id: str, driver: AnyDriver, place: msgspec.Struct, *, force: bool, timeout_s: float
    ) -> str:
        """The path that went away; empty where nothing was here. Without a record, the place says what to look for."""
        async with self.alone(volume_id, "disconnect", timeout_s) as left_s:
            try:
                record = self.records.get(volume_id)
            except RecordDamagedError:
                record = None
            if record is not None and record.state is not State.CONNECTED:
                await self._settle(record, left_s())
                record = _as_it_was(record)
            if record is None:
                record = self._new_record(volume_id, driver, place, State.DISCONNECTING)
            record = self._of_this_boot(record)
            found = await self._find_to_leave(record, force=force, timeout_s=left_s())
            if found is not None and found.device and not force:
                refuse_if_used(volume_id, found.device, self._machine.roots, verb="disconnect")
                await refuse_if_open(volume_id, found.device, self._machine.roots, verb="disconnect")
            mounted = self._mounted(record, force=force, timeout_s=left_s())
            # Without a record the link may still say that it was here.
            linked = str(self.links.path(volume_id)) if self.links.device(volume_id) else ""
            gone = record.path or (found.path or found.device if found is not None else "") or linked
            if found is not None:
                await self._give_up(record, mounted, left_s())
            await self._detach(record, force=force, timeout_s=left_s())
            if found is None:
                # Not before: what a file system writes at its end could go to another volume that has taken its place.
                await self._give_up(record, mounted, left_s())
            log.info("disconnected", volume=volume_id, path=gone)
            return gone

    async def recover(self, volume_id: str, *, timeout_s: float) -> bool:
        """Take away what a process that died has left of a volume. False where nothing was to be done."""
        # A program that is not executed yet still has the lock of the process that was killed while it started it.
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        await until_started(timeout_s=timeout_s)
        rest_s = max(0.0, ends - loop.time())
        async with AsyncExitStack() as stack:
            try:
                left_s = await stack.enter_async_context(self.alone(volume_id, "recover", rest_s, lock_s=0.0))
            except DeadlineError:
                return False  # somebody is at work on it, so nobody has died
            record = self.records.get(volume_id)
            if record is None or record.state is State.CONNECTED:
                return False
            await self._clear(record, left_s)
            log.info("recovered", volume=volume_id, was=str(record.state))
            return True

    async def find(self, volume_id: str, *, timeout_s: float) -> Attachment:
        """The attachment of a connected volume, after a look at the host. Changes nothing. UnreachableError where it
        is here and nobody answers behind it."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        record = self.records.get(volume_id)
        if record is None or _as_it_was(record).state is not State.CONNECTED:
            raise not_attached(volume_id)
        found = await self._find(record, timeout_s=timeout_s)
        if found is None or (found.device and self.links.device(record.volume_id) != found.device):
            raise not_attached(record.volume_id, was=record.path)
        await self._require_answer(record, timeout_s=ends - loop.time())
        return _attachment(record, found, record.path)

    async def _require_answer(self, record: Record, *, timeout_s: float) -> None:
        driver = self._driver_of(record)
        if not isinstance(driver, Answering):
            return
        with _typed(f"look for the volume {record.volume_id}", driver):
            away = await driver.away(self.context(record, timeout_s=max(0.0, timeout_s)), _place(driver, record))
        if away:
            raise UnreachableError(
                f"cannot use the volume {record.volume_id}: it is here as {record.path}, but {away}",
                hint="look whether the storage system is up and reached from here; the volume is still connected",
            )

    async def extend(self, volume_id: str, *, timeout_s: float) -> int:
        async with self.alone(volume_id, "extend", timeout_s) as left_s:
            attachment = await self.find(volume_id, timeout_s=left_s())
            record = self.records.get(volume_id)
            if record is None:
                raise not_attached(volume_id)
            driver = self._driver_of(record)
            context = self.context(record, timeout_s=left_s())
            if isinstance(driver, Growing):
                await driver.extend(context, _place(driver, record))
            return await size_of(attachment, context)

    def context(self, record: Record, *, timeout_s: float) -> Context:
        return Context(self._machine, self._settings, self._ledger(record), timeout_s=timeout_s)

    def context_of(self, volume_id: str, *, timeout_s: float) -> Context:
        """To work with a volume that is connected. NotAttachedError where it is not."""
        record = self.records.get(volume_id)
        if record is None:
            raise not_attached(volume_id)
        return self.context(record, timeout_s=timeout_s)

    async def _is_broken(self, driver: AnyDriver, record: Record, *, timeout_s: float) -> bool:
        """Here, and of no use to anybody: it is made anew."""
        if not isinstance(driver, Breaking):
            return False
        broken = await driver.broken(self.context(record, timeout_s=timeout_s), _place(driver, record))
        if broken:
            log.warning("the attachment is broken and is made anew", volume=record.volume_id, path=record.path)
        return broken

    async def _find(self, record: Record, *, timeout_s: float) -> Found | None:
        """IdentityMismatchError where another volume is in its place."""
        driver = self._driver_of(record)
        with _typed(f"look for the volume {record.volume_id}", driver):
            found = await driver.find(self.context(record, timeout_s=timeout_s), _place(driver, record))
        if found is not None:
            _require_same(record, found)
        return found

    async def _find_to_leave(self, record: Record, *, force: bool, timeout_s: float) -> Found | None:
        """Where another volume has taken its place, `force` gives up ours: the driver takes away what was found as this
        volume, unflushed, and leaves everything that was not. Without it nothing is changed, and the error names both.
        """
        try:
            return await self._find(record, timeout_s=timeout_s)
        except IdentityMismatchError as error:
            if not force:
                raise
            log.warning("given up: another volume is in its place", volume=record.volume_id, error=str(error))
            return None

    def _mounted(self, record: Record, *, force: bool, timeout_s: float) -> list[str]:
        """Where we have mounted the volume, which goes with it by `force`. Without, a directory that is bound is
        refused; a device was looked at already."""
        if not any(key.startswith(MOUNT_NOTE) for key in record.notes):
            return []
        # Imported here: a program that attaches devices mounts nothing.
        from quartermaster.connectors.own_mounts import own_mounts, refuse_if_bound

        context = self.context(record, timeout_s=timeout_s)
        if force:
            return own_mounts(context, record)
        if not record.device:
            refuse_if_bound(context, record)
        return []

    async def _give_up(self, record: Record, mounted: Sequence[str], timeout_s: float) -> None:
        if mounted:
            from quartermaster.connectors.own_mounts import give_up_mounts

            await give_up_mounts(self.context(record, timeout_s=timeout_s), mounted)

    async def _present(self, record: Record, *, timeout_s: float) -> Attachment | None:
        found = await self._find(record, timeout_s=timeout_s)
        if found is None:
            return None
        path = self.links.put(record.volume_id, found.device) if found.device else found.path
        if (path, found.device) != (record.path, record.device):
            self.records.put(msgspec.structs.replace(record, path=path, device=found.device))
        return _attachment(record, found, path)

    async def _attach(self, driver: AnyDriver, record: Record, data: msgspec.Struct, *, timeout_s: float) -> Attachment:
        """By the place of the record, in whatever order the data name the same: it is what `find` and `detach` get."""
        again = record.state is State.CONNECTED and record.boot == self._machine.boot
        state = State.RECONNECTING if again else State.CONNECTING
        record = msgspec.structs.replace(self._of_this_boot(record), state=state)
        ledger = Ledger(self.records, record, boot=self._machine.boot, written=False)
        context = Context(self._machine, self._settings, ledger, timeout_s=timeout_s, secrets=secrets_in(data))
        try:
            with _typed(f"connect the volume {record.volume_id}", driver):
                found = await driver.attach(context, data, _place(driver, record))
                _require_same(record, found)
                _require_size(context, record, found)
                ledger.begin()
                path = self.links.put(record.volume_id, found.device) if found.device else found.path
                ledger.change(state=State.CONNECTED, path=path, device=found.device, identity=found.identity)
        except BaseException as error:
            # Whoever has not answered is not waited for a second time: the rest of this call is enough.
            caller_s = context.left_s() if isinstance(error, UnreachableError) else None
            # It may be that only the last word could not be written.
            await self._take_back(msgspec.structs.replace(ledger.record, state=state), error, caller_s)
            raise
        log.info("connected", volume=record.volume_id, path=path, device=found.device)
        return _attachment(ledger.record, found, path)

    async def _take_back(self, record: Record, error: BaseException, caller_s: float | None) -> None:
        """The host as it was before. Where that fails too, the record stays for `recover`."""
        try:
            if record.state is State.RECONNECTING:
                self.records.put(_as_it_was(record))
                return
            timeout_s = self._settings.rollback_timeout_s
            late = isinstance(error, DeadlineError | asyncio.CancelledError)
            await self._detach(record, force=True, timeout_s=timeout_s, caller_s=caller_s, late=late)
        except Exception as second:
            log.warning("could not take back a failed connect", volume=record.volume_id, error=str(second))
            error.add_note(f"and what had been begun could not be taken back: {second}; recover() tries again")

    async def _clear(self, record: Record, left_s: Callable[[], float]) -> Record | None:
        """What a process that died has left is taken away; or is connected as it was, if somebody may use it."""
        await self._settle(record, left_s())
        if record.state is State.RECONNECTING:
            record = _as_it_was(record)
            self.records.put(record)
            return record
        # Nobody was ever told of a volume that was being connected, so nobody uses it.
        force = record.state is State.CONNECTING
        await self._detach(self._of_this_boot(record), force=force, timeout_s=left_s())
        return None

    async def _settle(self, record: Record, timeout_s: float) -> None:
        volume_id = record.volume_id
        what = f"the volume {volume_id}"
        await wait_for_leftovers(self._machine.directory, volume_id, timeout_s=timeout_s, what=what)

    async def _detach(
        self, record: Record, *, force: bool, timeout_s: float, caller_s: float | None = None, late: bool = False
    ) -> None:
        """`late` where a program may not have ended with its time, since it waits in the kernel for somebody."""
        driver = self._driver_of(record)
        place = _place(driver, record)
        with _typed(f"disconnect the volume {record.volume_id}", driver):
            ledger = self._ledger(record)
            known, damaged = self._known(record.volume_id)
            if record.state is State.CONNECTED:
                ledger.change(state=State.DISCONNECTING)
            elif not known or damaged:
                self.records.put(record)
            context = Context(self._machine, self._settings, ledger, timeout_s=timeout_s, caller_s=caller_s)
            self.links.remove(record.volume_id)
            try:
                await driver.detach(context, place, force=force)
            except (VolumeBusyError, MountBusyError, IdentityMismatchError):
                self._stay(record, ledger.record, new=not known)
                raise
            left = await driver.find(context, place)
            if left is not None:
                raise LeftoverError(
                    f"cannot disconnect the volume {record.volume_id}: {left.device or left.path} is still here",
                    hint="disconnect it again; it may be in use",
                )
            if late and (at_work := at_work_for(self._machine.directory, record.volume_id)):
                raise LeftoverError(
                    f"cannot forget the volume {record.volume_id}: process {at_work[0]} is still at work for it",
                    hint="recover when it has ended",
                )
            self.records.remove(record.volume_id)

    def _stay(self, before: Record, now: Record, *, new: bool) -> None:
        """It was refused, so nothing was changed: it is attached as it was, and `recover` leaves it alone. A record
        that was made for the call alone would have the next one begin by taking away what is not ours."""
        if new and before.state is State.DISCONNECTING:
            self.records.remove(before.volume_id)
        if before.state is State.CONNECTED and before.claims == now.claims:
            if before.device:
                self.links.put(before.volume_id, before.device)
            self.records.put(before)

    def _known(self, volume_id: str) -> tuple[bool, bool]:
        """Whether there is a record of it, and whether it cannot be read."""
        try:
            return self.records.get(volume_id) is not None, False
        except RecordDamagedError:
            return True, True

    @asynccontextmanager
    async def alone(
        self, volume_id: str, verb: str, timeout_s: float, *, lock_s: float | None = None
    ) -> AsyncIterator[Any]:
        """With the volume's lock, waited for up to `lock_s`. Yields a function that says what is left of the time."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        with _typed(f"{verb} the volume {volume_id}"):
            waits_s = timeout_s if lock_s is None else lock_s
            async with self._machine.locks.hold(f"volume {volume_id}", timeout_s=waits_s):
                yield lambda: max(0.0, ends - loop.time())

    def _ledger(self, record: Record) -> Ledger:
        return Ledger(self.records, record, boot=self._machine.boot)

    def _of_this_boot(self, record: Record) -> Record:
        """Sessions and mounts do not outlive a boot, and neither do claims on them."""
        if record.boot == self._machine.boot:
            return record
        return msgspec.structs.replace(record, boot=self._machine.boot, claims={})

    def _new_record(self, volume_id: str, driver: AnyDriver, place: msgspec.Struct, state: State) -> Record:
        return Record(
            volume_id=volume_id,
            driver=driver.route.driver_type,
            client=driver.route.client,
            state=state,
            place=msgspec.json.decode(msgspec.json.encode(place)),
            boot=self._machine.boot,
        )

    def _refuse_difference(self, record: Record, fresh: Record) -> None:
        how = f"it is attached here as {record.driver} ({record.client})"
        if (record.driver, record.client) != (fresh.driver, fresh.client):
            how = f"{how} and not as {fresh.driver} ({fresh.client})"
        elif _is_same_place(record, fresh):
            return
        else:
            how = f"{how}, but with other data"
        raise AttachmentConflictError(
            f"cannot connect the volume {record.volume_id}: {how}: {record.path}", hint="disconnect it first"
        )


def not_attached(volume_id: str, *, was: str = "") -> NotAttachedError:
    before = f" any more; it was {was}" if was else ""
    return NotAttachedError(
        f"cannot find the volume {volume_id}: it is not attached to this host{before}", hint="connect it first"
    )


def _is_same_place(record: Record, fresh: Record) -> bool:
    """Storage systems name their portals in any order, and at times a WWID that they have not named before."""
    known, given = dict(record.place), dict(fresh.place)
    if given.get("wwid") in ("", known.get("wwid")) or same_identity(str(given.get("wwid")), record.identity):
        known.pop("wwid", None)
        given.pop("wwid", None)
    return bool(_in_any_order(known) == _in_any_order(given))


def _in_any_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_any_order(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_in_any_order(inner) for inner in value), key=repr)
    return value


def _as_it_was(record: Record) -> Record:
    """Of a volume that was to be made anew, before that: with all that it has joined since."""
    known = record.state is State.RECONNECTING
    return msgspec.structs.replace(record, state=State.CONNECTED) if known else record


def _place(driver: AnyDriver, record: Record) -> Any:
    return msgspec.convert(record.place, driver.route.place)


def _attachment(record: Record, found: Found, path: str) -> Attachment:
    return Attachment(
        volume_id=record.volume_id,
        driver_volume_type=record.driver,
        path=path,
        device=found.device,
        identity=found.identity,
    )


def _require_same(record: Record, found: Found) -> None:
    where = found.device or found.path
    require_identity(record.volume_id, where, expected=record.identity, found=found.identity)


def _require_size(context: Context, record: Record, found: Found) -> None:
    """What has no room is not the disk that somebody means: a LUN of the storage system itself, or an empty file."""
    size = context.files.text(device_directory(found.device, context.roots) / "size") if found.device else ""
    if size == "0":
        raise ConnectorError(
            f"cannot use {found.device} as the volume {record.volume_id}: it has 0 bytes",
            hint="look whether the data name the right LUN or file",
        )


def _hint(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid():
        return "run it as root"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room where the library keeps its records; nothing is attached without one"
    return ""


class _typed:  # noqa: N801 - reads as a statement
    """An error of the operating system becomes one of ours: callers meet one tree only. So does any of a driver that
    came with another package, which is named then."""

    def __init__(self, verb: str, driver: AnyDriver | None = None) -> None:
        self._verb = verb
        self._driver = driver

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, QuartermasterError):
            where = f"{error.filename}: " if error.filename else ""
            raise ConnectorError(f"cannot {self._verb}: {where}{error.strerror or error}", hint=_hint(error)) from error
        if self._driver is not None:
            blame(self._driver, self._verb, error)
