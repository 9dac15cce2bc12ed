"""All objects of a store as one moment shows them: into a file, out of a file, or from one store into another.

A backup is one line of JSON for each object between a first line that says what it is and a last one that says how
much there was, so that a file that was cut off or changed is noticed before anything is written. Objects are copied as
they are stored: uid, creation time and owners of fields stay, and with them every reference between objects; the
version is the new store's own. What stands behind Leases (`/held/`) is of the moment and is not copied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from quartermaster.stores.kv.base import KeyValue, Operation, Put, Remove, prefix_end
from quartermaster.support import clock
from quartermaster.support.errors import ConflictError, InvalidError
from quartermaster.support.files import about

FORMAT = "quartermaster-backup"
VERSION = 1
_OBJECTS = "/objects/"
_CHUNK = 200
# Of one transaction: etcd takes 128 operations and 1.5 MB.
_OPERATIONS = 64
_BYTES = 512 << 10


class Header(msgspec.Struct, frozen=True):
    format: str
    version: int
    store: str
    revision: int
    time: str


class Stored(msgspec.Struct, frozen=True):
    """One object: where it stands, and the document."""

    key: str
    value: msgspec.Raw


class Footer(msgspec.Struct, frozen=True):
    objects: int
    sha256: str


class Backup(msgspec.Struct, frozen=True):
    """A file that was found to be whole."""

    path: Path
    header: Header
    objects: int

    def read(self) -> Iterator[Stored]:
        with self.path.open("rb") as file:
            next(file)
            for _ in range(self.objects):
                yield msgspec.json.decode(next(file), type=Stored)


class Copied(msgspec.Struct, frozen=True):
    """What a copy came to."""

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    kept: int = 0  # of the target, whatever the source has


Keep = Callable[[str], bool]
"""Whether what stands at a key is the target's own: it is neither written nor removed."""

Change = Callable[[str, bytes], bytes]
"""What is written for a key in place of what was copied."""


async def objects_of(kv: KeyValue, *, revision: int = 0) -> AsyncIterator[Stored]:
    """Everything at one moment, in the order of the keys. ExpiredError when that moment was forgotten meanwhile."""
    revision = revision or await kv.revision()
    start, end = _OBJECTS, prefix_end(_OBJECTS)
    while True:
        part = await kv.range(start, end, limit=_CHUNK, revision=revision)
        for entry in part.entries:
            yield Stored(entry.key, msgspec.Raw(entry.value))
        if not part.more or not part.entries:
            return
        start = part.entries[-1].key + "\0"


async def write_backup(kv: KeyValue, path: Path, *, leave_out: Keep = lambda _key: False) -> Backup:
    """A file that is whole or not there, and readable by its owner alone: it holds Secrets."""
    revision = await kv.revision()
    header = Header(FORMAT, VERSION, kv.url, revision, clock.timestamp())
    digest, count = hashlib.sha256(), 0
    with _new_file(path) as file:
        _write_line(file, digest, msgspec.json.encode(header))
        async for stored in objects_of(kv, revision=revision):
            if not leave_out(stored.key):
                _write_line(file, digest, msgspec.json.encode(stored))
                count += 1
        file.write(msgspec.json.encode(Footer(count, digest.hexdigest())) + b"\n")
    return Backup(path, header, count)


def open_backup(path: Path) -> Backup:
    """Reads all of it once: InvalidError says what is wrong before anything is done with it."""
    digest, last, count = hashlib.sha256(), b"", -1
    header: Header | None = None
    with path.open("rb") as file:
        for line in file:
            if header is None:
                header = _header(path, line)
            if last:
                digest.update(last)
                count += 1
            last = line
    try:
        footer = msgspec.json.decode(last, type=Footer)
    except msgspec.DecodeError as error:
        raise _broken(path, "its end is missing") from error
    if header is None or footer.objects != count or footer.sha256 != digest.hexdigest():
        raise _broken(path, "it was cut off or changed")
    return Backup(path, header, count)


async def load(kv: KeyValue, source: AsyncIterator[Stored], *, keep: Keep, change: Change, replace: bool) -> Copied:
    """Make the target hold what the source does. What is only in the target goes with `replace`, else it stays.

    Without `replace` a key that is there with another object is a ConflictError before anything is written. Cut off,
    it is completed by the same call again.
    """
    present = {stored.key: bytes(stored.value) async for stored in objects_of(kv)}
    writes: dict[str, bytes] = {}
    seen: dict[str, None] = {}
    kept = unchanged = 0
    async for stored in source:
        seen[stored.key] = None
        if keep(stored.key):
            kept += 1
            continue
        value = change(stored.key, bytes(stored.value))
        have = present.get(stored.key)
        if have == value:
            unchanged += 1
        elif have is not None and not replace and uid_of(have) != uid_of(value):
            raise ConflictError(
                f"cannot copy {stored.key}: another object of that name is there", hint="copy into an empty store"
            )
        else:
            writes[stored.key] = value
    gone = [key for key in present if replace and key not in seen and not keep(key)]
    await _transact_all(kv, [*(Put(key, value) for key, value in writes.items()), *(Remove(key) for key in gone)])
    return Copied(len(writes), unchanged, len(gone), kept)


async def _transact_all(kv: KeyValue, operations: list[Operation]) -> None:
    """Without conditions: what is written is wanted whatever is there, and nobody acts on such a store meanwhile."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        weight = len(operation.value) if isinstance(operation, Put) else 0
        if batch and (len(batch) >= _OPERATIONS or size + weight > _BYTES):
            await kv.transact((), batch)
            batch, size = [], 0
        batch.append(operation)
        size += weight
    if batch:
        await kv.transact((), batch)


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Document(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


def uid_of(value: bytes) -> str:
    """The uid in a stored object; "" where it has none that can be read."""
    try:
        return msgspec.json.decode(value, type=_Document).metadata.uid
    except msgspec.DecodeError:
        return ""


def unfinished(path: Path) -> Path:
    """What a backup is called until it is whole; one that was cut off stays under this name."""
    return path.with_name(f".{path.name}.new")


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Appears under its name when it is whole and on the disk."""
    temporary = unfinished(path)
    with about(path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _write_line(file: BinaryIO, digest: hashlib._Hash, line: bytes) -> None:
    digest.update(line + b"\n")
    file.write(line + b"\n")


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise _broken(path, "it is no backup of Quartermaster") from error
    if header.format != FORMAT or header.version > VERSION:
        raise _broken(path, f"it is of the form {header.format} {header.version}, and this program knows {VERSION}")
    return header


def _broken(path: Path, why: str) -> InvalidError:
    return InvalidError(f"cannot read the backup {path}: {why}", hint="nothing was written")
