"""How large an attached volume is, as this host sees it."""

from __future__ import annotations

from quartermaster.connectors.context import Context
from quartermaster.connectors.errors import ConnectorError
from quartermaster.connectors.identity import device_directory
from quartermaster.connectors.model import Attachment
from quartermaster.host.commands import Command

_SECTOR = 512  # sysfs counts in these, whatever the disk does


async def size_of(attachment: Attachment, context: Context) -> int:
    """Bytes. A file may lie on a dead server, so it is looked at through a command with a deadline."""
    if attachment.device:
        return device_size(attachment.device, context)
    verb = f"tell the size of {attachment.path}"
    argv = ("stat", "--dereference", "--format=%s", attachment.path)
    return int((await context.commands.run(Command(argv, verb=verb, changes=False))).text)


def device_size(device: str, context: Context) -> int:
    text = context.files.text(device_directory(device, context.roots) / "size")
    if text.isdecimal():
        return int(text) * _SECTOR
    raise ConnectorError(f"cannot tell the size of {device}: the kernel does not say it")
