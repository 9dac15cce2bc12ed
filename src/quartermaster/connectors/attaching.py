"""Connecting, disconnecting and recovering one volume, the same way for every driver.

A call holds the lock of its volume from beginning to end, so ten processes that connect one volume attach it once. The
order on the disk is: the record that says "connecting", the host, the link, the record that says "connected"; and back
again in the opposite order. The first is written when something is about to change the host (see `Ledger`). Whoever
finds a record that is not "connected", with the lock free, has found the work of a process that died: it waits for the
programs that it left behind, and takes everything away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from quartermaster.connectors.context import Context, Ledger, Machine
from quartermaster.connectors.driver import Breaking, Found, Growing, Settings
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
from quartermaster.connectors.identity import require_identity
from quartermaster.connectors.leftovers import wait_for_leftovers
from quartermaster.connectors.links import Links
from quartermaster.connectors.model import Attachment
from quartermaster.connectors.records import Record, Records, State
from quartermaster.connectors.registry import AnyDriver
from quartermaster.connectors.secret import secrets_in
from quartermaster.connectors.sizes import size_of
from quartermaster.connectors.usage import refuse_if_used
from quartermaster.support.errors import MountBusyError, QuartermasterError
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
                await self._clear(record, left_s)
                record = None
            if record is not None:
                self._refuse_difference(record, fresh)
                # After a boot everything is made anew: whatever is here then was made by somebody else.
                if record.boot == self._machine.boot:
                    present = await self._present(record, timeout_s=left_s())
                    if present is not None and not await self._is_broken(driver, record, timeout_s=left_s()):
                        return present
            return await self._attach(driver, record or fresh, data, place, timeout_s=left_s())

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
            if record is None:
                record = self._new_record(volume_id, driver, place, State.DISCONNECTING)
            record = self._of_this_boot(record)
            found = await self._find_to_leave(record, force=force, timeout_s=left_s())
            if found is not None and found.device and not force:
                refuse_if_used(volume_id, found.device, self._machine.roots, verb="disconnect")
            gone = record.path or (found.path or found.device if found is not None else "")
            await self._detach(record, force=force, timeout_s=left_s())
            log.info("disconnected", volume=volume_id, path=gone)
            return gone

    async def recover(self, volume_id: str, *, timeout_s: float) -> bool:
        """Take away what a process that died has left of a volume. False where nothing was to be done."""
        async with self.alone(volume_id, "recover", timeout_s) as left_s:
            record = self.records.get(volume_id)
            if record is None or record.state is State.CONNECTED:
                return False
            await self._clear(record, left_s)
            log.info("recovered", volume=volume_id, was=str(record.state))
            return True

    async def find(self, volume_id: str, *, timeout_s: float) -> Attachment:
        """The attachment of a connected volume, after a look at the host. Changes nothing."""
        record = self.records.get(volume_id)
        if record is None or record.state is not State.CONNECTED:
            raise not_attached(volume_id)
        found = await self._find(record, timeout_s=timeout_s)
        if found is None or (found.device and self.links.device(record.volume_id) != found.device):
            raise not_attached(record.volume_id, was=record.path)
        return _attachment(record, found, record.path)

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

    async def _present(self, record: Record, *, timeout_s: float) -> Attachment | None:
        found = await self._find(record, timeout_s=timeout_s)
        if found is None:
            return None
        path = self.links.put(record.volume_id, found.device) if found.device else found.path
        if (path, found.device) != (record.path, record.device):
            self.records.put(msgspec.structs.replace(record, path=path, device=found.device))
        return _attachment(record, found, path)

    async def _attach(
        self, driver: AnyDriver, record: Record, data: msgspec.Struct, place: msgspec.Struct, *, timeout_s: float
    ) -> Attachment:
        record = msgspec.structs.replace(self._of_this_boot(record), state=State.CONNECTING)
        ledger = Ledger(self.records, record, boot=self._machine.boot, written=False)
        context = Context(self._machine, self._settings, ledger, timeout_s=timeout_s, secrets=secrets_in(data))
        try:
            with _typed(f"connect the volume {record.volume_id}"):
                found = await driver.attach(context, data, place)
                _require_same(record, found)
                ledger.begin()
                path = self.links.put(record.volume_id, found.device) if found.device else found.path
                ledger.change(state=State.CONNECTED, path=path, device=found.device, identity=found.identity)
        except BaseException as error:
            # Whoever has not answered is not waited for a second time: the rest of this call is enough.
            caller_s = context.left_s() if isinstance(error, UnreachableError) else None
            await self._take_back(ledger.record, error, caller_s)
            raise
        log.info("connected", volume=record.volume_id, path=path, device=found.device)
        return _attachment(ledger.record, found, path)

    async def _take_back(self, record: Record, error: BaseException, caller_s: float | None) -> None:
        """The host as it was before. Where that fails too, the record stays for `recover`."""
        try:
            await self._detach(record, force=True, timeout_s=self._settings.rollback_timeout_s, caller_s=caller_s)
        except (QuartermasterError, OSError) as second:
            log.warning("could not take back a failed connect", volume=record.volume_id, error=str(second))
            error.add_note(f"and what had been begun could not be taken back: {second}; recover() tries again")

    async def _clear(self, record: Record, left_s: Callable[[], float]) -> None:
        await self._settle(record, left_s())
        # Nobody was ever told of a volume that was being connected, so nobody uses it.
        force = record.state is State.CONNECTING
        await self._detach(self._of_this_boot(record), force=force, timeout_s=left_s())

    async def _settle(self, record: Record, timeout_s: float) -> None:
        await wait_for_leftovers(record.volume_id, timeout_s=timeout_s, what=f"the volume {record.volume_id}")

    async def _detach(self, record: Record, *, force: bool, timeout_s: float, caller_s: float | None = None) -> None:
        driver = self._driver_of(record)
        place = _place(driver, record)
        with _typed(f"disconnect the volume {record.volume_id}"):
            ledger = self._ledger(record)
            if record.state is State.CONNECTED:
                ledger.change(state=State.DISCONNECTING)
            elif self._is_new(record):
                self.records.put(record)
            context = Context(self._machine, self._settings, ledger, timeout_s=timeout_s, caller_s=caller_s)
            self.links.remove(record.volume_id)
            try:
                await driver.detach(context, place, force=force)
            except (VolumeBusyError, MountBusyError):
                self._stay(record, ledger.record)
                raise
            left = await driver.find(context, place)
            if left is not None:
                raise LeftoverError(
                    f"cannot disconnect the volume {record.volume_id}: {left.device or left.path} is still here",
                    hint="disconnect it again; it may be in use",
                )
            self.records.remove(record.volume_id)

    def _stay(self, before: Record, now: Record) -> None:
        """Somebody uses it, so nothing was changed: it is attached as it was, and `recover` leaves it alone."""
        if before.state is State.CONNECTED and before.claims == now.claims:
            if before.device:
                self.links.put(before.volume_id, before.device)
            self.records.put(before)

    def _is_new(self, record: Record) -> bool:
        try:
            return self.records.get(record.volume_id) is None
        except RecordDamagedError:
            return True

    @asynccontextmanager
    async def alone(self, volume_id: str, verb: str, timeout_s: float) -> AsyncIterator[Any]:
        """With the volume's lock. Yields a function that says what is left of the time."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        with _typed(f"{verb} the volume {volume_id}"):
            async with self._machine.locks.hold(f"volume {volume_id}", timeout_s=timeout_s):
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
        if (record.driver, record.client, record.place) != (fresh.driver, fresh.client, fresh.place):
            raise AttachmentConflictError(
                f"cannot connect the volume {record.volume_id}: it is attached here as {record.driver} "
                f"({record.client}) at another place, {record.path}",
                hint="disconnect it first",
            )


def not_attached(volume_id: str, *, was: str = "") -> NotAttachedError:
    before = f" any more; it was {was}" if was else ""
    return NotAttachedError(
        f"cannot find the volume {volume_id}: it is not attached to this host{before}", hint="connect it first"
    )


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


class _typed:  # noqa: N801 - reads as a statement
    """An error of the operating system becomes one of ours: callers meet one tree only."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, QuartermasterError):
            where = f"{error.filename}: " if error.filename else ""
            raise ConnectorError(f"cannot {self._verb}: {where}{error.strerror or error}") from error
