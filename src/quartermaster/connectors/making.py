"""Whether something may be made on a volume's device: a file system, or an encrypted container.

No signature does not mean no data: a raw database or an unlabelled encryption has none. So nothing is made on a device
whose beginning or end is not zero, unless somebody has said that it may be lost. One exception is known: what this
library had begun to make itself, which a note in the record says from before the first byte. The note names the device,
and goes as soon as something else tells the same or nothing was written: whoever uses the device for something else
afterwards must not lose that by an old note.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from quartermaster.connectors.context import Context
from quartermaster.connectors.identity import device_directory
from quartermaster.connectors.model import Attachment
from quartermaster.connectors.sizes import device_size
from quartermaster.host.devices.signatures import is_blank
from quartermaster.support.errors import DeviceRefusedError, QuartermasterError, ToolMissingError

_BEGUN = "making"
_LOOK_TIMEOUT_S = 60.0


class Making:
    """`unknown` is whether data that nobody recognises may be lost."""

    def __init__(self, context: Context, *, unknown: bool) -> None:
        self._context = context
        self._unknown = unknown

    async def require_room(self, device: str) -> None:
        """DeviceRefusedError where there is something on the device."""
        if self._unknown or self._begun() == device or await self._is_blank(device):
            return
        raise DeviceRefusedError(
            f"cannot make anything on {device}: it is not blank, though nobody recognises what is on it",
            code="UnknownData",
            hint="nothing was changed; overwrite_unknown (--overwrite-unknown) gives these data up",
        )

    @asynccontextmanager
    async def writing(self, device: str) -> AsyncIterator[None]:
        """Around a program that writes: where there is room, or where what was interrupted has been recognised."""
        before = self._begun()
        self.begin(device)
        try:
            yield
        except ToolMissingError:
            self.begin(before)
            raise
        except (Exception, asyncio.CancelledError):
            with suppress(QuartermasterError):
                if await self._is_blank(device):
                    self.end()
                elif self._unknown:
                    # What was given up may be as it was; whoever gives it up can say so again.
                    self.begin(before)
            raise

    def begin(self, device: str) -> None:
        """What is on the device from now on is nobody's, whatever it looks like."""
        self._context.note(**{_BEGUN: device})

    def end(self) -> None:
        """What is on the device can be recognised, or is somebody's."""
        self.begin("")

    def size_of(self, device: str) -> int:
        return device_size(device, self._context)

    def _begun(self) -> str:
        return self._context.notes.get(_BEGUN, "")

    async def _is_blank(self, device: str) -> bool:
        return await is_blank(self._context.commands, device, self.size_of(device), timeout_s=_LOOK_TIMEOUT_S)


def may_only_be_read(context: Context, attachment: Attachment) -> bool:
    """Because it was connected so, or because the kernel says it of the device."""
    if context.read_only:
        return True
    device = attachment.device
    return bool(device) and context.files.text(device_directory(device, context.roots) / "ro") == "1"
