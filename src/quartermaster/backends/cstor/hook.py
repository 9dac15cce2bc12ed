"""The form in which the rules of this backend are called, whoever calls them: from what is to what should be.

A hook watches one kind. It is handed one object of that kind and everything that belongs to it, and answers with the
complete wish: the status of the watched object and the objects that should exist because of it. It does no I/O, knows
no clock and keeps nothing between calls, so it runs the same in the controller's process and behind HTTP, and a call
that is repeated or comes late does no harm.

What a caller has to do:

1. Decode the watched object and its attachments to their types, and call `sync`, or `finalize` where the watched
   object has a deletionTimestamp. A hook with `finalize` wants a finalizer on the watched object before anything else
   happens, and its removal after an answer that is `finalized`.
2. `attachments` of the answer are complete objects by name: create those that are missing, marked with
   `CREATED_FOR_ANNOTATION: <uid of the watched object>`; three-way apply those that bear this mark; delete those of
   the kinds that the hook owns that bear it and are not listed. What does not bear the mark is never touched by that.
   An object with a deletionTimestamp is left alone until it is gone, and is then made anew if it is still listed.
3. `explicit_updates` are parts of objects that somebody else made (a label on a BlockDevice, an adopted pool cluster):
   three-way apply them too, so that what an earlier part stated and this one does not is taken back; an object for
   which no part is listed is left as it is. `explicit_deletes` are objects to delete by name, with the uid that they
   state as precondition.
4. With `skip_reconcile` do none of 2 and 3; status, labels, annotations and events hold all the same.
5. Write the status if it differs from what is there (`status` None: leave it). The order of writes is: annotations and
   labels, explicit updates, creates and updates, deletes, status; so that a status never promises what was not done.
6. Call again when the watched object or an attachment changes, and after `resync_after_s` (0: not by itself).
7. What takes something away cannot be taken back, and what a cache shows is a little old: a volume replica that was
   made a moment ago is not in it yet. So before an answer is made true that deletes something, finalizes, or says that
   it is `irreversible`, read the watched object and every kind with a `confirm` from the store itself, call once more
   with that, and act on the second answer only.

Which objects belong to a watched object is said by join keys: an attachment belongs where it shares one of its keys
with the watched object. Both sides can be indexed by them (`Cache` takes such index functions), so that a change finds
its watched objects and a watched object its attachments without looking at all others. A caller that sends more than
that (metac sends all objects of a kind) changes nothing: hooks pick out what is theirs.

Kinds of which a cluster has very many (`AttachmentRule.indexed`) need not be handed over one by one: a caller in the
same process keeps one `Inventory` up to date from its caches and hands that over. Without it the hook makes one from
the attachments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.resources.model import Object

T = TypeVar("T", bound=Object)

# metac's own mark, so that what it made is known as ours when our controller takes over, and the other way round.
CREATED_FOR_ANNOTATION = "metac.openebs.io/created-due-to-watch"

Access = Literal["read", "update", "own"]
Keys = Callable[[Any], Iterable[str]]
Document = dict[str, Any]

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"

_EVERYTHING = ("*",)


def everything(_: Object) -> Iterable[str]:
    """The join key of kinds of which each object concerns each watched object."""
    return _EVERYTHING


class Attachments:
    """Typed objects by kind, each kind ordered by namespace and name."""

    __slots__ = ("_by_key", "_by_kind")

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        by_kind: dict[type[Object], list[Object]] = {}
        for obj in objects:
            by_kind.setdefault(type(obj), []).append(obj)
        for found in by_kind.values():
            if len(found) > 1:
                found.sort(key=_place)
        self._by_kind = by_kind
        self._by_key: dict[type[Object], dict[tuple[str, str], Object]] = {}

    def of(self, kind: type[T]) -> tuple[T, ...]:
        return tuple(self._by_kind.get(kind, ()))  # type: ignore[arg-type]

    def everything(self) -> Iterator[Object]:
        for found in self._by_kind.values():
            yield from found

    def get(self, kind: type[T], namespace: str, name: str) -> T | None:
        known = self._by_key.get(kind)
        if known is None:
            known = self._by_key[kind] = {_place(obj): obj for obj in self._by_kind.get(kind, ())}
        return known.get((namespace, name))  # type: ignore[return-value]


def _place(obj: Object) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    watch: Any  # an object of the kind that the hook watches
    attachments: Attachments
    now: str  # as Kubernetes writes a time: 2020-01-31T12:00:00Z
    finalizing: bool = False
    inventory: Inventory | None = None  # of the indexed kinds; None: they are among the attachments


class HookEvent(msgspec.Struct, frozen=True):
    """Something to tell people about the watched object. A caller records it once per change of its message."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class SyncResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: Document | None = None
    labels: Mapping[str, str | None] = {}  # of the watched object; None removes one
    annotations: Mapping[str, str | None] = {}
    attachments: tuple[Document, ...] = ()
    explicit_updates: tuple[Document, ...] = ()
    explicit_deletes: tuple[Document, ...] = ()
    resync_after_s: float = 0.0
    skip_reconcile: bool = False
    finalized: bool = False
    irreversible: bool = False  # it takes something away in a way that a caller cannot see, such as a pool of a cluster
    events: tuple[HookEvent, ...] = ()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a store the objects of a kind are that matter before something irreversible: all that belong are there.

    With a `name` it is one object, else those of a namespace (None: of all) that have the labels.
    """

    namespace: str | None = None
    name: str = ""
    labels: Mapping[str, str] = {}

    def covers(self, obj: Object) -> bool:
        meta = obj.metadata
        here = self.namespace is None or meta.namespace == self.namespace
        return here and self.name in ("", meta.name) and self.labels.items() <= meta.labels.items()


class AttachmentRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind that a hook looks at, and which of its objects belong to a watched object."""

    kind: type[Object]
    access: Access = "read"  # update: by explicit updates; own: it creates, updates and deletes them, explicitly too
    keys_of_watch: Keys = everything
    keys_of_object: Keys = everything
    indexed: bool = False
    # Where to read them anew before something irreversible; None: what the caller knows of them is good enough.
    confirm: Callable[[Any], Look | None] | None = None
    # Whether a change of such an object can change the answer; None: every change. (old, new), as a cache tells them.
    matters: Callable[[Any, Any], bool] | None = None
    # What the controller keeps own objects with until the hook no longer lists them and everybody else is through.
    finalizer: str = ""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a hook. `name` is its path segment: POST /sync/<name>, POST /finalize/<name>."""

    name: str
    watch: type[Object]
    attachments: tuple[AttachmentRule, ...]
    sync: Callable[[SyncRequest], SyncResponse]
    finalize: Callable[[SyncRequest], SyncResponse] | None = None
    # Whether a change of the watched object itself can change the answer; None: every change.
    matters: Callable[[Any, Any], bool] | None = None
