"""From an answer of a hook and what is there to the writes that make up the difference. Pure.

What bears the mark of the watched object is its own: it is made, changed and deleted as the answer lists it. What does
not is never touched, unless the answer says so explicitly; a name that somebody else has taken is a mistake to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from quartermaster.backends.cstor.hook import Access, Hook, SyncResponse
from quartermaster.hooks.fulfilled import Fulfilled
from quartermaster.hooks.merging import (
    OWNER_ANNOTATION,
    last_applied,
    marked,
    merged,
    stated_finalizers,
    wanted_document,
    without_others_finalizers,
)
from quartermaster.resources.codec import Document, from_document, to_document
from quartermaster.resources.kind import find_version, kind_of
from quartermaster.resources.model import Key, Object
from quartermaster.support.errors import AlreadyExistsError, InvalidError, Problem

Accesses = Mapping[type[Object], Access]
Finder = Callable[[type[Object], Key], Object | None]


_RANKS: tuple[Access, ...] = ("read", "update", "own")


class Create(msgspec.Struct, frozen=True):
    cls: type[Object]
    key: Key
    document: Document


class Update(msgspec.Struct, frozen=True):
    """The whole object as it should be; refused if it is not the one that was seen."""

    before: Object
    after: Object


class Patch(msgspec.Struct, frozen=True):
    """Some fields of an object that somebody else made."""

    before: Object
    document: Document


class Delete(msgspec.Struct, frozen=True):
    before: Object


class Writes(msgspec.Struct, frozen=True):
    """In the order in which they are made."""

    patches: tuple[Patch, ...] = ()
    creates: tuple[Create, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: tuple[Delete, ...] = ()
    foreign: tuple[AlreadyExistsError, ...] = ()  # names that somebody else has taken


class Observed(msgspec.Struct, frozen=True):
    """What was there when the hook was called: `own` bears the mark of the watched object, `find` knows everything."""

    own: Mapping[type[Object], Iterable[Object]]
    find: Finder


def accesses_of(hook: Hook) -> Accesses:
    """What the hook may do with each kind: the most that any of its rules says."""
    found: dict[type[Object], Access] = {}
    for rule in hook.attachments:
        if _RANKS.index(rule.access) >= _RANKS.index(found.get(rule.kind, "read")):
            found[rule.kind] = rule.access
    return found


def finalizers_of(hook: Hook) -> dict[type[Object], str]:
    """With what the hook's rules hold its own objects, by kind."""
    return {rule.kind: rule.finalizer for rule in hook.attachments if rule.finalizer}


def decide(
    hook: Hook,
    watch: Object,
    response: SyncResponse,
    observed: Observed,
    *,
    finalizers: Mapping[type[Object], tuple[str, ...]],
    may_create: bool = True,
    fulfilled: Fulfilled | None = None,
) -> Writes:
    """`finalizers` are those with which objects of a kind are born, so that nobody has to add them afterwards.

    `fulfilled` is what earlier calls found out; without it the decision is the same.
    """
    known = fulfilled if fulfilled is not None else Fulfilled()
    holds = finalizers_of(hook)
    access = accesses_of(hook)
    uid = watch.metadata.uid
    wanted = {
        (cls, key): document
        for cls, key, document in (
            _placed(hook, access, watch, document, ("own",)) for document in response.attachments
        )
    }
    creates, updates, foreign = [], [], []
    for (cls, key), given in wanted.items():
        before = observed.find(cls, key)
        if before is None:
            if may_create:
                document = _as_typed(cls, given, uid)
                born_with = (*finalizers.get(cls, ()), *filter(None, (holds.get(cls),)))
                creates.append(Create(cls, key, _born(marked(document, uid, own=True), born_with)))
        elif before.metadata.annotations.get(OWNER_ANNOTATION) != uid:
            foreign.append(taken(watch, before))
        elif before.metadata.deletion_timestamp is None and not known.has(before, given, uid, own=True):
            there = to_document(before)
            document = without_others_finalizers(_as_typed(cls, given, uid), there, uid)
            after = _held(there, merged(cls, there, document, uid, own=True), holds.get(cls, ""))
            if after is None:
                known.note(before, given, uid, own=True)
            else:
                updates.append(Update(before, from_document(cls, after)))
    deletes, released = _unwanted(observed.own, set(wanted), uid, holds)
    return Writes(
        patches=tuple(_patches(hook, access, watch, response.explicit_updates, observed.find, known=known)),
        creates=tuple(creates),
        updates=(*updates, *released),
        deletes=(*deletes, *_explicit_deletes(hook, access, watch, response.explicit_deletes, observed.find)),
        foreign=tuple(foreign),
    )


def taken(watch: Object, there: Object) -> AlreadyExistsError:
    """The error for a name that is not ours to use."""
    owner = there.metadata.annotations.get(OWNER_ANNOTATION, "")
    whose = f"it was made for the object with uid {owner}" if owner else "it was not made by this controller"
    if there.metadata.deletion_timestamp is not None:
        whose += " and is being deleted"
    return AlreadyExistsError(
        f"cannot create {_named(there)} for {_named(watch)}: it is there already, and {whose}",
        hint="it was not touched; delete or rename it if it is in the way",
    )


def _unwanted(
    own: Mapping[type[Object], Iterable[Object]],
    wanted: set[tuple[type[Object], Key]],
    uid: str,
    holds: Mapping[type[Object], str],
) -> tuple[list[Delete], list[Update]]:
    """Deletes, and the finalizers that the answer once stated and which now hold up what is being deleted.

    The one that the rule of the kind names is the last to go: then whoever else had one is through.
    """
    deletes, released = [], []
    for cls, objects in own.items():
        for obj in objects:
            if (cls, obj.key) in wanted:
                continue
            if obj.metadata.deletion_timestamp is None:
                deletes.append(Delete(obj))
            else:
                stated = stated_finalizers(last_applied(to_document(obj), uid))
                kept = tuple(name for name in obj.metadata.finalizers if name not in stated)
                if kept == (holds.get(cls),):
                    kept = ()
                if kept != obj.metadata.finalizers:
                    metadata = msgspec.structs.replace(obj.metadata, finalizers=kept)
                    released.append(Update(obj, msgspec.structs.replace(obj, metadata=metadata)))
    return deletes, released


def _as_typed(cls: type[Object], given: Document, uid: str) -> Document:
    """What is equal to a default is not written, neither there nor here."""
    return wanted_document(to_document(from_document(cls, given)), uid)


def _patches(
    hook: Hook, access: Accesses, watch: Object, given: Iterable[Document], find: Finder, *, known: Fulfilled
) -> Iterable[Patch]:
    uid = watch.metadata.uid
    for part in given:
        cls, key, placed = _placed(hook, access, watch, part, ("update", "own"))
        before = find(cls, key)
        if before is None or known.has(before, placed, uid, own=False):
            continue  # an apply would make it, and it is not ours to make
        document = wanted_document(placed, uid)
        if merged(cls, to_document(before), document, uid, own=False) is None:
            known.note(before, placed, uid, own=False)
        else:
            version = {"uid": before.metadata.uid, "resourceVersion": before.metadata.resource_version}
            sent = marked(document, uid, own=False)
            yield Patch(before, {**sent, "metadata": {**sent["metadata"], **version}})


def _explicit_deletes(
    hook: Hook, access: Accesses, watch: Object, given: Iterable[Document], find: Finder
) -> Iterable[Delete]:
    for document in given:
        cls, key, placed = _placed(hook, access, watch, document, ("own",))
        before = find(cls, key)
        stated = placed["metadata"].get("uid", "")
        if before is None or before.metadata.deletion_timestamp is not None:
            continue
        if not stated or stated == before.metadata.uid:
            yield Delete(before)


def _placed(
    hook: Hook,
    access: Accesses,
    watch: Object,
    document: Document,
    allowed: tuple[Access, ...],
) -> tuple[type[Object], Key, Document]:
    """The class and the name of what the hook returned; without a namespace it is in that of the watched object."""
    cls = find_version(str(document.get("apiVersion")), str(document.get("kind")))
    metadata: Any = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if cls is None or access.get(cls) not in allowed or not isinstance(name, str) or not name:
        what = f"{document.get('apiVersion')}/{document.get('kind')} {name or 'without a name'}"
        problem = Problem(
            what, "is not something that the hook may write", f"it declares no such kind as {allowed[-1]}"
        )
        raise InvalidError(f"cannot use the answer of the hook {hook.name}", [problem])
    namespace = (metadata.get("namespace") or watch.metadata.namespace) if kind_of(cls).namespaced else ""
    place = {"name": name, **({"namespace": namespace} if namespace else {})}
    rest = {field: value for field, value in metadata.items() if field not in ("name", "namespace")}
    return cls, Key(namespace, name), {**document, "metadata": {**place, **rest}}


def _born(document: Document, finalizers: tuple[str, ...]) -> Document:
    if not finalizers:
        return document
    stated = document["metadata"].get("finalizers", [])
    added = [*stated, *(name for name in finalizers if name not in stated)]
    return {**document, "metadata": {**document["metadata"], "finalizers": added}}


def _held(there: Document, after: Document | None, finalizer: str) -> Document | None:
    """The object as it should be, with the finalizer that all of its kind have, also what was made before that."""
    document = there if after is None else after
    if not finalizer or finalizer in document["metadata"].get("finalizers", ()):
        return after
    return _born(document, (finalizer,))


def _named(obj: Object) -> str:
    return f"{kind_of(obj).kind} {obj.key}"
