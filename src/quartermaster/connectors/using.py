"""What a program does with a volume once it is attached: mount it, look how full it is, let it grow.

What is mounted and what is open, the host itself says; a note only tells which mounts are ours. Each call may therefore
be repeated, also after one that was killed. A mount whose server or device is gone is mounted anew.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from quartermaster.connectors.attaching import Attaching
from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.filesystems import grow_file_system, prepare_file_system
from quartermaster.connectors.luks import close_luks, grow_luks, luks_device, open_luks
from quartermaster.connectors.making import Making, may_only_be_read
from quartermaster.connectors.model import Attachment
from quartermaster.connectors.own_mounts import belongs, forget_mount, is_made, is_noted, note_mount
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.sizes import size_of
from quartermaster.connectors.usage import users_of
from quartermaster.host.commands import Command
from quartermaster.host.mountinfo import Mount, mounted_at
from quartermaster.host.mounts import MountState, canonical
from quartermaster.host.targets import remove_if_empty
from quartermaster.support.errors import CommandDeadlineError, InvalidError, MountConflictError

_LOOK_S = 5.0
_STATISTICS = "%S %b %f %a %c %d"


class Mounted(msgspec.Struct, frozen=True, rename="camel"):
    volume_id: str
    target: str
    source: str  # what is mounted there: the device, the opened container, or the directory that is bound
    file_system: str = ""


class Statistics(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes and files. Of a block device that is not mounted only the size is known."""

    size: int
    used: int | None = None
    available: int | None = None
    files: int | None = None
    files_used: int | None = None


class Using:
    def __init__(self, attaching: Attaching) -> None:
        self._attaching = attaching

    async def mount(
        self,
        volume_id: str,
        target: str,
        *,
        file_system: str,
        options: Sequence[str],
        read_only: bool,
        key: Secret,
        overwrite_unknown: bool,
        timeout_s: float,
    ) -> Mounted:
        async with self._attaching.alone(volume_id, "mount", timeout_s) as left_s:
            attachment, context = await self._attached(volume_id, left_s())
            read_only = read_only or may_only_be_read(context, attachment)
            await _drop_corrupted(context, target)
            with _noted(context, target):
                if not attachment.device:
                    _refuse_for_directory(attachment, file_system=file_system, options=options, key=key)
                    await context.mounts.bind(attachment.path, target, read_only=read_only)
                    return Mounted(volume_id, target, attachment.path)
                device, making = attachment.device, Making(context, unknown=overwrite_unknown)
                if key:
                    device = await open_luks(context, device, key, read_only=read_only, making=making)
                found = await prepare_file_system(
                    context.commands,
                    device,
                    volume_id=volume_id,
                    wanted=file_system,
                    read_only=read_only,
                    idle=not users_of(device, context.roots),
                    making=making,
                )
                chosen = [*options, *(["ro"] if read_only and "ro" not in options else [])]
                await context.mounts.mount(device, target, type=found, options=chosen, timeout_s=context.left_s())
                return Mounted(volume_id, target, device, found)

    async def unmount(self, volume_id: str, target: str, *, force: bool, timeout_s: float) -> bool:
        """Whether something was mounted. An encrypted volume is closed with its last mount."""
        async with self._attaching.alone(volume_id, "unmount", timeout_s) as left_s:
            context = self._attaching.context_of(volume_id, timeout_s=left_s())
            self._mount_of(context, target, verb="unmount")
            made = is_made(context, target)
            try:
                changed = await context.mounts.unmount(target, remove=made, timeout_s=context.left_s() / 2, lazy=force)
            except CommandDeadlineError:
                # Its server does not answer; whoever still has it open is left with nothing.
                if not force:
                    raise
                changed = await context.mounts.unmount(target, lazy=True, force=True, remove=made)
            forget_mount(context, target)
            opened = luks_device(context)
            if opened and not users_of(opened, context.roots):
                await close_luks(context)
            return changed

    async def statistics(self, volume_id: str, *, target: str, timeout_s: float) -> Statistics:
        attachment, context = await self._attached(volume_id, timeout_s)
        path = target or ("" if attachment.device else attachment.path)
        if not path:
            return Statistics(await size_of(attachment, context))
        if path != attachment.path and self._mount_of(context, path, verb="look at") is None:
            raise ConnectorError(
                f"cannot look at the volume {volume_id}: nothing is mounted on {path}", hint="mount it there first"
            )
        argv = ("stat", "--file-system", f"--format={_STATISTICS}", path)
        answer = await context.commands.run(Command(argv, verb=f"look how full {path} is", changes=False))
        return parse_statistics(answer.text)

    async def grow(self, volume_id: str, target: str, *, timeout_s: float) -> None:
        """The container and the file system, after the device itself has grown."""
        async with self._attaching.alone(volume_id, "grow", timeout_s) as left_s:
            _, context = await self._attached(volume_id, left_s())
            mount = self._mount_of(context, target, verb="grow")
            await grow_luks(context)
            if mount is None:
                raise ConnectorError(
                    f"cannot grow the volume {volume_id}: nothing is mounted on {target}", hint="mount it there first"
                )
            await grow_file_system(context.commands, mount.source, mount.target, mount.type)

    def _mount_of(self, context: Context, target: str, *, verb: str) -> Mount | None:
        """What is mounted on the target; MountConflictError where it is not this volume."""
        table = context.mounts.table()
        mount = mounted_at(table, canonical(table, target))
        record = self._attaching.records.get(context.volume_id)
        if mount is None or record is None or belongs(context, record, table, mount):
            return mount
        raise MountConflictError(
            f"cannot {verb} the volume {context.volume_id}: what is mounted on {target} is {mount.source}",
            hint="name the directory on which the volume is mounted; nothing was changed",
        )

    async def _attached(self, volume_id: str, timeout_s: float) -> tuple[Attachment, Context]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout_s
        attachment = await self._attaching.find(volume_id, timeout_s=timeout_s)
        return attachment, self._attaching.context_of(volume_id, timeout_s=max(0.0, ends - loop.time()))


def parse_statistics(text: str) -> Statistics:
    block, total, free, available, files, files_free = (int(word) for word in text.split())
    return Statistics(
        size=total * block,
        used=(total - free) * block,
        available=available * block,
        # A file system that makes them as they are needed says 0.
        files=files or None,
        files_used=files - files_free if files else None,
    )


def _refuse_for_directory(attachment: Attachment, *, file_system: str, options: Sequence[str], key: Secret) -> None:
    """Whoever asks for a key must not be left with plain files."""
    asked = {"a key": bool(key), "a file system": bool(file_system), "options": bool(options)}
    wrong = [what for what, given in asked.items() if given]
    if wrong:
        raise InvalidError(
            f"cannot mount the volume {attachment.volume_id} with {' and '.join(wrong)}: "
            f"it is no device, but {attachment.path}, which is bound to the directory as it is",
            hint="leave it out; nothing was changed",
        )


@contextmanager
def _noted(context: Context, target: str) -> Iterator[None]:
    """A mount is known by a note. Directories that have to be made for it go again if it fails; and the target itself
    with the mount."""
    missing = [path for path in (Path(target), *Path(target).parents) if not os.path.lexists(path)]
    known = is_noted(context, target)
    note_mount(context, target, made=bool(missing))
    try:
        yield
    except BaseException:
        for path in missing:
            remove_if_empty(path)
        # One that we have made earlier is there as it was.
        if missing or not known:
            forget_mount(context, target)
        raise


async def _drop_corrupted(context: Context, target: str) -> None:
    health = await context.mounts.health(target, timeout_s=min(_LOOK_S, context.left_s()))
    if health.state is MountState.CORRUPTED:
        await context.mounts.unmount(target, lazy=True)
