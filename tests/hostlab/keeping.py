"""What every kind of volume has to do: keep what was written to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quartermaster.connectors import Attachment, Connector
from tests.hostlab.programs import run

MEDIA = Path("/media")
LETTER = MEDIA / "letter"
FORMAT_S = 300.0  # an emulated machine is slow


async def write_and_leave(connector: Connector, info: dict[str, Any]) -> Attachment:
    """Connected, with a file system and a letter on it, and disconnected."""
    attachment = await connector.connect(info)
    assert await connector.connect(info) == attachment
    run("mkfs.ext4", "-q", attachment.path, timeout_s=FORMAT_S)
    run("mount", attachment.path, MEDIA)
    LETTER.write_text("kept")
    run("umount", MEDIA)
    assert await connector.disconnect(info) == attachment.path
    return attachment


async def read_again(connector: Connector, info: dict[str, Any]) -> None:
    """Connected, the letter read, and disconnected."""
    attachment = await connector.connect(info)
    run("mount", attachment.path, MEDIA)
    assert LETTER.read_text() == "kept"
    run("umount", MEDIA)
    await connector.disconnect(info)
