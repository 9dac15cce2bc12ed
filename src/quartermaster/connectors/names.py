"""Names of files and digests, made from what a storage system calls things: readable where that is possible."""

from __future__ import annotations

import re

_LONGEST = 120
_PLAIN = re.compile(r"[A-Za-z0-9+.:=@_-]")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


def file_name(text: str) -> str:
    """Readable, safe as the name of a file, and different for different texts."""
    escaped = "".join(
        character if _PLAIN.match(character) else "".join(f"\\x{byte:02x}" for byte in character.encode())
        for character in text
    )
    if escaped.startswith("."):
        escaped = f"\\x2e{escaped[1:]}"
    return escaped if len(escaped) <= _LONGEST else f"{escaped[:_LONGEST]}-{digest_of(text)}"


def text_of(name: str) -> str:
    """What has the name; of a text that was too long for one, its beginning."""
    data = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), name.encode(errors="surrogateescape"))
    return data.decode(errors="replace")


def digest_of(text: str) -> str:
    """Twenty hexadecimal digits that stand for the text."""
    # Imported here: it is not needed to make a connector, and costs as much memory as half of this library.
    import hashlib

    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:20]
