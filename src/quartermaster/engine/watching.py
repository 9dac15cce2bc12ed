"""Which changes of which objects concern a controller, and which of its own objects they concern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Key, Object

# Only a name: see the module `controller` for why.
Request = Key

# (old, new), as the handlers of a cache get them. True: it matters.
Predicate = Callable[[Any, Any], bool]
# One object of another kind → the objects of ours that must look again.
Mapper = Callable[[Any], Iterable[Request]]


@dataclass(frozen=True)
class Watch:
    """Another kind of which changes matter. Make one with `owned` or `mapped`."""

    kind: type[Object]
    mapper: Mapper
    predicate: Predicate | None = None
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


def owned(kind: type[Object], *, by: type[Object], predicate: Predicate | None = None, labels: str = "") -> Watch:
    """Objects of `kind` concern the one of the kind `by` that is their controller."""
    owner = kind_of(by)

    def controller_of(obj: Object) -> Iterable[Request]:
        for reference in obj.metadata.owner_references:
            group = reference.api_version.rpartition("/")[0]
            if reference.controller and reference.kind == owner.kind and group == owner.group:
                yield Request(obj.metadata.namespace if owner.namespaced else "", reference.name)

    return Watch(kind, controller_of, predicate, labels=labels)


def mapped(
    kind: type[Object],
    mapper: Mapper,
    *,
    predicate: Predicate | None = None,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
) -> Watch:
    """Objects of `kind` concern whichever objects `mapper` names. A change asks it about both states."""
    return Watch(kind, mapper, predicate, namespace, labels, fields)


def generation_changed(old: Object | None, new: Object | None) -> bool:
    """Passes what a user declares, not what is reported: additions, ends, and changes of the spec.

    The beginning of a deletion counts as well, for kinds whose generation it does not raise.
    """
    if old is None or new is None:
        return True
    before, after = old.metadata, new.metadata
    return before.generation != after.generation or before.deletion_timestamp != after.deletion_timestamp


def labels_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old.metadata.labels != new.metadata.labels


def annotations_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old.metadata.annotations != new.metadata.annotations


def finalizers_changed(old: Object | None, new: Object | None) -> bool:
    return old is None or new is None or old.metadata.finalizers != new.metadata.finalizers


def any_of(*predicates: Predicate) -> Predicate:
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def forgiving_predicate(predicate: Predicate | None, failed: Callable[[], None]) -> Predicate:
    """In doubt it matters: a call for nothing is harmless, a lost key is not.

    `failed` is called while the error is handled.
    """

    def check(old: Any, new: Any) -> bool:
        try:
            return predicate is None or predicate(old, new)
        except Exception:  # the next object may be fine
            failed()
            return True

    return check


def forgiving(watch: Watch, failed: Callable[[], None]) -> Watch:
    """The same watch, with functions of which a failure costs one object its requests and nobody else anything."""

    def ask(obj: Any) -> Iterable[Request]:
        try:
            return tuple(watch.mapper(obj))
        except Exception:  # as above
            failed()
            return ()

    return replace(watch, mapper=ask, predicate=forgiving_predicate(watch.predicate, failed))


def requests_of(watch: Watch, old: Object | None, new: Object | None) -> Iterable[Request]:
    """Whom a change concerns: those that the new state names and those that the old one named."""
    found: dict[Request, None] = {}
    for obj in (old, new):
        if obj is not None:
            found.update(dict.fromkeys(watch.mapper(obj)))
    return found
