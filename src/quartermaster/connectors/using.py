"""What a program does with a volume once it is attached: mount it, look how full it is, let it grow.

Nothing is remembered: what is mounted and what is open, the host itself says. Each call may therefore be repeated, also
after one that was killed. A mount whose server or device is gone is mounted anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.connectors.attaching import Attaching
from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.filesystems import grow_file_system, prepare_file_system
from quartermaster.connectors.luks import close_luks, grow_luks, luks_device, open_luks
from quartermaster.connectors.model import Attachment
from quartermaster.connectors.secret import Secret
from quartermaster.connectors.sizes import size_of
from quartermaster.connectors.usage import users_of
from quartermaster.host.commands import Command
from quartermaster.host.mountinfo import mounted_at
from quartermaster.host.mounts import MountState, canonical
from quartermaster.support.errors import CommandDeadlineError

_LOOK_S = 5.0
_STATISTICS = "%S %b %f %a %c %d"


class Mounted(msgspec.Struct, frozen=True, rename="camel"):
    volume_id: str
    target: str
    source: str  # what is mounted there: the device, the opened container, or the directory that is bound
    file_system: str = ""


class Statistics(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes and files. A block device that is not mounted has a size and nothing else."""

    size: int
    used: int = 0
    available: int = 0
    files: int = 0
    files_used: int = 0


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
        timeout_s: float,
    ) -> Mounted:
        async with self._attaching.alone(volume_id, "mount", timeout_s) as left_s:
            attachment, context = await self._attached(volume_id, left_s())
            await _drop_corrupted(context, target)
            if not attachment.device:
                await context.mounts.bind(attachment.path, target, read_only=read_only)
                return Mounted(volume_id, target, attachment.path)
            device = attachment.device
            if key:
                device = await open_luks(context, device, key, read_only=read_only)
            found = await prepare_file_system(
                context.commands,
                device,
                volume_id=volume_id,
                wanted=file_system,
                read_only=read_only,
                idle=not users_of(device, context.roots),
            )
            chosen = [*options, *(["ro"] if read_only else [])]
            await context.mounts.mount(device, target, type=found, options=chosen, timeout_s=context.left_s())
            return Mounted(volume_id, target, device, found)

    async def unmount(self, volume_id: str, target: str, *, force: bool, timeout_s: float) -> bool:
        """Whether something was mounted. An encrypted volume is closed with its last mount."""
        async with self._attaching.alone(volume_id, "unmount", timeout_s) as left_s:
            context = self._attaching.context_of(volume_id, timeout_s=left_s())
            try:
                changed = await context.mounts.unmount(target, remove=True, timeout_s=context.left_s() / 2, lazy=force)
            except CommandDeadlineError:
                # Its server does not answer; whoever still has it open is left with nothing.
                if not force:
                    raise
                changed = await context.mounts.unmount(target, lazy=True, force=True, remove=True)
            opened = luks_device(context)
            if opened and not users_of(opened, context.roots):
                await close_luks(context)
            return changed

    async def statistics(self, volume_id: str, *, target: str, timeout_s: float) -> Statistics:
        attachment, context = await self._attached(volume_id, timeout_s)
        path = target or ("" if attachment.device else attachment.path)
        if not path:
            return Statistics(await size_of(attachment, context))
        argv = ("stat", "--file-system", f"--format={_STATISTICS}", path)
        answer = await context.commands.run(Command(argv, verb=f"look how full {path} is", changes=False))
        return parse_statistics(answer.text)

    async def grow(self, volume_id: str, target: str, *, timeout_s: float) -> None:
        """The container and the file system, after the device itself has grown."""
        async with self._attaching.alone(volume_id, "grow", timeout_s) as left_s:
            _, context = await self._attached(volume_id, left_s())
            await grow_luks(context)
            table = context.mounts.table()
            mount = mounted_at(table, canonical(table, target))
            if mount is None:
                raise ConnectorError(
                    f"cannot grow the volume {volume_id}: nothing is mounted on {target}", hint="mount it there first"
                )
            await grow_file_system(context.commands, mount.source, mount.target, mount.type)

    async def _attached(self, volume_id: str, timeout_s: float) -> tuple[Attachment, Context]:
        attachment = await self._attaching.find(volume_id, timeout_s=timeout_s)
        return attachment, self._attaching.context_of(volume_id, timeout_s=timeout_s)


def parse_statistics(text: str) -> Statistics:
    block, total, free, available, files, files_free = (int(word) for word in text.split())
    return Statistics(
        size=total * block,
        used=(total - free) * block,
        available=available * block,
        files=files,
        files_used=files - files_free,
    )


async def _drop_corrupted(context: Context, target: str) -> None:
    health = await context.mounts.health(target, timeout_s=min(_LOOK_S, context.left_s()))
    if health.state is MountState.CORRUPTED:
        await context.mounts.unmount(target, lazy=True)
