"""The `Store`: where everything declared or reported lives. No other room knows which one it has.

The contract, which one conformance suite holds all four stores to:

- Versions (`metadata.resourceVersion`, `Page.revision`) are opaque: compare them for equality only, pass them back.
- `update` and `update_status` need the resourceVersion that was read; ConflictError says somebody wrote in between.
- A write that changes nothing makes no new version and no event.
- A kind with a status subresource: `create` and `update` leave the status alone, `update_status` everything else.
- `delete` of an object with finalizers marks it; it goes when the last finalizer is removed by an update.
  What owner references make of its dependants is done by the collector (engine), as in Kubernetes.
- `watch` from a `Page.revision` misses nothing and repeats nothing. It reconnects by itself; when the revision is too
  old it raises ExpiredError, and the caller lists again.
- A stored object that does not fit its type hides no other: `get` raises UnreadableError, which names the object and
  the field; a list leaves it out and counts it; in a watch it is DELETED when it ceases to fit, MODIFIED when it fits
  again (a store that cannot know what it was before raises ExpiredError); `delete` by its name removes it.
- With a `fence`, a write happens only while that Lease is held by that holder in that epoch, else FencedError. The
  Kubernetes store cannot compare two objects in one write: there `fences` is False and agents refuse a lower epoch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from quartermaster.resources.model import Object

T = TypeVar("T", bound=Object)
Propagation = Literal["Background", "Foreground", "Orphan"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A list, or a part of one. All parts of one list show the same moment."""

    items: tuple[T, ...]
    revision: str  # watch from here
    continues: str = ""  # pass it back for the next part; "" at the end
    skipped: int = 0  # how many were left out because they do not fit their type


def in_order(items: Iterable[T]) -> tuple[T, ...]:
    """As a list is ordered. Keys are not: they have a "/" where a "-" or a host sorts otherwise."""
    return tuple(sorted(items, key=lambda item: (item.metadata.namespace, item.metadata.name)))


class Event(msgspec.Struct, Generic[T], frozen=True):
    """One change. A BOOKMARK has no object and says: everything up to `revision` was delivered."""

    type: EventType
    revision: str
    object: T | None = None


def _is_allowed() -> None:
    """Who has no clock of a term asks nobody."""


class Fence(msgspec.Struct, frozen=True):
    """The leadership under which a write is made.

    `check` raises FencedError once the leader's own clock says that its term may be over. A store that cannot compare
    the Lease asks it in the last moment before each attempt to send: an attempt may come long after the call.
    """

    namespace: str
    lease: str
    holder: str
    epoch: int
    check: Callable[[], None] = _is_allowed


class Store(Protocol):
    """A home for objects."""

    @property
    def url(self) -> str:
        """How a person names it, without secrets; every writing command shows it."""
        ...

    @property
    def fences(self) -> bool:
        """Whether a fenced write is compared with the Lease in the same transaction."""
        ...

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T: ...

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continues: str = "",
    ) -> Page[T]:
        """Objects in a namespace (None: in all); `limit` 0 means all of them, ordered by namespace and name.

        Parts come in an order of the store's own. ExpiredError says that the moment of the first part is forgotten:
        with `limit` 0 that is met by the store itself, so whoever meets it between parts lists without a limit.

        `labels` and `fields` are selectors as kubectl takes them: "a=b,c in (d,e),!f" and "spec.type=glusterfs".
        """
        ...

    def watch(
        self, kind: type[T], namespace: str | None = None, *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        """Changes after the revision `since`. Close it with `aclose()` (`contextlib.aclosing`)."""
        ...

    async def create(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        """`metadata.generateName` without a name makes one up. AlreadyExistsError if the name is taken."""
        ...

    async def update(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T: ...

    async def update_status(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T: ...

    async def apply(
        self,
        document: dict[str, Any],
        *,
        manager: str = "",
        force: bool = False,
        status: bool = False,
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: the fields in `document` become the manager's; those it gave up and nobody else owns go.

        ApplyConflictError names the fields that others own with another value, unless `force`. With `status` the
        status subresource is written. `manager` "" is the store's own.
        """
        ...

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        revision: str = "",
        propagation: Propagation = "Background",
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> T:
        """Returns the object as it was last seen, or as it is now with its deletionTimestamp.

        One that does not fit its type is returned as a bare `Object`, which has its metadata and nothing else.
        `uid` and `revision` are preconditions: ConflictError when they do not match.
        """
        ...

    async def lease_held(self, namespace: str, name: str) -> bool | None:
        """Whether somebody keeps the Lease alive, by the store's own clock; None where the store cannot tell."""
        ...

    async def close(self) -> None: ...


class Written(msgspec.Struct, frozen=True):
    """Which objects were written, by name, each with its resourceVersion; `revision` is when that was asked."""

    versions: dict[str, str]
    revision: str


class TellsWhatWasWritten(Protocol):
    """A store that is asked cheaply which of many objects were written; to be told of each write would cost more."""

    async def written(self, kind: type[Object], namespace: str, *, since: str = "") -> Written:
        """Those of one namespace that are there and were written after `since`; all of them without it."""
        ...


class StreamsInitialState(Protocol):
    """A store that can send what is there as the beginning of a watch, so that no list has to be held in memory."""

    def watch_from_start(
        self, kind: type[T], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        """What is there as ADDED events in any order, one BOOKMARK, then every change as `watch` has it.

        Before that BOOKMARK nothing can be resumed: UnavailableError says that the stream broke off, and the caller
        forgets what it got and begins again. RefusedError says that the server does not offer this: list, then watch.
        """
        ...
