"""The small revisioned key-value interface on which our own object semantics stand.

One counter of revisions for the whole store: every transaction that changes something gets the next one. Keys are
text, ordered by their UTF-8 bytes; a range is [start, end). What is asked of an implementation:

- a transaction is atomic and durable when it returns;
- a watch delivers every change after a revision once, in order, all changes of one revision in one batch;
- a revision that was compacted raises ExpiredError, nothing is skipped silently;
- the loss of a connection is latency: calls wait (bounded) and resume; UnavailableError only when the bound is over.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """A key as it is at some revision."""

    key: str
    value: bytes
    created: int  # the revision that made it
    modified: int  # the revision that wrote it last


class Range(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...]
    more: bool  # the limit cut it
    revision: int  # the revision that was read


class Written(msgspec.Struct, frozen=True):
    """Which keys were written, each with the revision that wrote it last."""

    keys: dict[str, int]
    revision: int  # the revision that was read


class Compare(msgspec.Struct, frozen=True):
    """A condition of a transaction. Exactly one of `modified` (0: the key is absent) and `value` is set."""

    key: str
    modified: int | None = None
    value: bytes | None = None


class Put(msgspec.Struct, frozen=True):
    key: str
    value: bytes
    lease: int = 0  # the key goes when that lease ends


class Remove(msgspec.Struct, frozen=True):
    key: str


Operation = Put | Remove


class Outcome(msgspec.Struct, frozen=True):
    """What became of a transaction."""

    succeeded: bool
    revision: int
    current: dict[str, Entry | None] = {}  # when it did not succeed: the compared keys as they are
    # The connection broke and the transaction was sent again: "not succeeded" may mean that the first one had been.
    repeated: bool = False


class Change(msgspec.Struct, frozen=True):
    """One key in a watch. `value` is None when it was removed."""

    key: str
    value: bytes | None
    revision: int
    created: int = 0
    previous: bytes | None = None  # what it held before; None if it was absent


class Batch(msgspec.Struct, frozen=True):
    """All that happened up to `revision`; without changes it is a sign of progress."""

    changes: tuple[Change, ...]
    revision: int


class KeyValue(Protocol):
    """A revisioned key-value store."""

    @property
    def url(self) -> str:
        """How a person names it, without secrets."""
        ...

    async def revision(self) -> int:
        """The newest revision, for whoever may read everything; others have it with what they read."""
        ...

    async def get(self, key: str) -> Entry | None: ...

    async def range(self, start: str, end: str, *, limit: int = 0, revision: int = 0) -> Range:
        """The keys in [start, end), at a revision (0: now). Raises ExpiredError if that was compacted."""
        ...

    async def written(self, start: str, end: str, *, after: int = 0) -> Written:
        """The keys in [start, end) that are there and were written after a revision; no value is read."""
        ...

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """If all conditions hold, do all operations under one new revision. A key occurs in one operation only."""
        ...

    def watch(self, start: str, end: str, *, after: int) -> AsyncGenerator[Batch, None]:
        """Every change in [start, end) with a revision greater than `after`. Close it with `aclose()`."""
        ...

    async def grant(self, ttl_s: float) -> int:
        """A lease; keys put with it are removed when it is not kept alive for `ttl_s`."""
        ...

    async def keep_alive(self, lease: int) -> bool:
        """False when the lease is gone already."""
        ...

    async def revoke(self, lease: int) -> None: ...

    async def compact(self, revision: int) -> None:
        """Forget what was before `revision`."""
        ...

    async def close(self) -> None: ...


def prefix_end(prefix: str) -> str:
    """The smallest key after all keys that start with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
