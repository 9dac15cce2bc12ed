"""Between typed objects and JSON documents, without losing what this version does not know.

Reading: fields that the type has no name for are set aside in `Object.unknown`, in a tree of the document's shape.
Writing: they are laid back in. Elements of lists are found again by their declared key, else by being equal in the
known part, else (the list having kept its length) by position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import UNKNOWN_KEY, Object

T = TypeVar("T", bound=Object)
Document = dict[str, Any]

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


class _Plan(msgspec.Struct, frozen=True):
    """How to walk a document: which names a struct knows, what lies in a list or map."""

    fields: dict[str, _Plan | None] | None = None  # a struct
    names: frozenset[str] = frozenset()  # all names of that struct
    nested: tuple[tuple[str, _Plan], ...] = ()  # those of its fields that have to be walked themselves
    items: _Plan | None = None  # a list of structs
    keys: tuple[str, ...] = ()  # that list's declared keys
    values: _Plan | None = None  # a map to structs


def to_document(obj: Object) -> Document:
    """The object as it is stored and sent: apiVersion, kind and metadata first, unknown fields laid back in."""
    info = kind_of(obj)
    # Through JSON rather than to_builtins: a document has lists where the struct has tuples.
    body: Document = _DECODER.decode(_ENCODER.encode(obj))
    metadata = body.pop("metadata", {})
    unknown = obj.unknown
    if unknown:
        del body[UNKNOWN_KEY]
    document = {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata, **body}
    if unknown:
        _restore(document, unknown, _plan_of(type(obj)))
    return document


def from_document(cls: type[T], document: Document) -> T:
    """A stored document as a typed object; leniently: it was admitted once, perhaps by a newer version."""
    try:
        obj = msgspec.convert(document, cls, strict=False)
    except msgspec.ValidationError:
        obj = _from_unusual(cls, document)
    # Nearly always there is nothing to set aside, and every object that is read comes this way.
    if _check_of(cls)(document):
        return obj
    unknown = _set_aside(document, _plan_of(cls))
    return msgspec.structs.replace(obj, unknown=unknown) if unknown else obj


def _from_unusual(cls: type[T], document: Document) -> T:
    """An API server writes null for some fields that are unset; a quantity of Kubernetes may be a number like 0.5."""
    given = _without_nulls(document)
    try:
        return msgspec.convert(given, cls, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert(_with_fractions_as_text(given), cls, strict=False)


def encode(obj: Object) -> bytes:
    """The bytes of `to_document`, in one pass where no unknown field has to be laid in."""
    if obj.unknown:
        return _ENCODER.encode(to_document(obj))
    body = _ENCODER.encode(obj)
    return _head_of(type(obj)) + (b"," if body != b"{}" else b"") + body[1:]


def decode(cls: type[T], data: bytes | memoryview) -> T:
    return from_document(cls, _DECODER.decode(data))


def encode_document(document: Document) -> bytes:
    return _ENCODER.encode(document)


def decode_document(data: bytes | memoryview) -> Document:
    document: Document = _DECODER.decode(data)
    return document


@cache
def _head_of(cls: type[Object]) -> bytes:
    info = kind_of(cls)
    return _ENCODER.encode({"apiVersion": info.api_version, "kind": info.kind})[:-1]


@cache
def _plan_of(cls: type[msgspec.Struct]) -> _Plan:
    plan = _plan(inspect.type_info(cls)) or _Plan()
    # No fields of the struct, and yet known: its kind says them.
    return msgspec.structs.replace(plan, names=plan.names | {"apiVersion", "kind"})


def _plan(info: inspect.Type) -> _Plan | None:
    extra: dict[str, Any] = {}
    while isinstance(info, inspect.Metadata):
        extra = {**(info.extra or {}), **extra}
        info = info.type
    if isinstance(info, inspect.UnionType):
        plans = [p for p in map(_plan, info.types) if p is not None]
        return plans[0] if plans else None
    if isinstance(info, inspect.StructType):
        fields = {f.encode_name: _plan(f.type) for f in info.fields if f.encode_name != UNKNOWN_KEY}
        nested = tuple((name, plan) for name, plan in fields.items() if plan is not None)
        return _Plan(fields=fields, names=frozenset(fields), nested=nested)
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        item = _plan(info.item_type)
        return _Plan(items=item, keys=tuple(extra.get("keys", ()))) if item else None
    if isinstance(info, inspect.DictType):
        value = _plan(info.value_type)
        return _Plan(values=value) if value else None
    return None


@cache
def _check_of(cls: type[msgspec.Struct]) -> Callable[[Any], bool]:
    return _check(_plan_of(cls))


def _check(plan: _Plan) -> Callable[[Any], bool]:
    """A function that says whether the plan has a name for everything in a value; in doubt it has not."""
    if plan.items is not None:
        check_item = _check(plan.items)
        return lambda value: type(value) is list and all(map(check_item, value))
    if plan.values is not None:
        check_value = _check(plan.values)
        return lambda value: type(value) is dict and all(map(check_value, value.values()))
    knows = plan.names.issuperset
    nested = tuple((name, _check(inner)) for name, inner in plan.nested)

    def check(value: Any) -> bool:
        if type(value) is not dict or not knows(value):
            return False
        for name, check_child in nested:
            child = value.get(name)
            if child and not check_child(child):
                return False
        return True

    return check


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value]
    return value


def _with_fractions_as_text(value: Any) -> Any:
    """A field that wants a number takes that text too."""
    if isinstance(value, dict):
        return {name: _with_fractions_as_text(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_with_fractions_as_text(child) for child in value]
    return str(value) if isinstance(value, float) else value


def _set_aside(value: Any, plan: _Plan) -> Any:
    """The part of `value` that the plan has no names for, or None."""
    if plan.fields is not None and isinstance(value, dict):
        found = {name: child for name, child in value.items() if name not in plan.names}
        for name, inner in plan.nested:
            if rest := _set_aside(value.get(name), inner):
                found[name] = rest
        return found or None
    if plan.values is not None and isinstance(value, dict):
        return {k: rest for k, v in value.items() if (rest := _set_aside(v, plan.values))} or None
    if plan.items is not None and isinstance(value, list):
        rests = [_set_aside(element, plan.items) for element in value]
        if not any(rests):
            return None
        kept = [[i, _known_part(value[i], plan.items), rest] for i, rest in enumerate(rests) if rest]
        return {"length": len(value), "elements": kept}
    return None


def _known_part(value: Any, plan: _Plan) -> Any:
    if plan.fields is not None and isinstance(value, dict):
        return {
            k: _known_part(v, inner) if (inner := plan.fields[k]) else v for k, v in value.items() if k in plan.fields
        }
    if plan.values is not None and isinstance(value, dict):
        return {k: _known_part(v, plan.values) for k, v in value.items()}
    if plan.items is not None and isinstance(value, list):
        return [_known_part(v, plan.items) for v in value]
    return value


def _restore(value: Any, unknown: Any, plan: _Plan) -> None:
    """Lay `unknown` into `value`. What the writer removed on purpose (a whole parent) stays removed."""
    if plan.fields is not None:
        for name, rest in unknown.items():
            if name not in plan.fields:
                value.setdefault(name, rest)
            elif (inner := plan.fields[name]) is not None and name in value:
                _restore(value[name], rest, inner)
    elif plan.values is not None:
        for name, rest in unknown.items():
            if name in value:
                _restore(value[name], rest, plan.values)
    elif plan.items is not None:
        for position, known, rest in unknown["elements"]:
            element = _find_element(value, position, known, plan, unknown["length"])
            if element is not None:
                _restore(element, rest, plan.items)


def _find_element(elements: list[Any], position: int, known: Any, plan: _Plan, length: int) -> Any:
    if plan.keys:
        wanted = [known.get(k) for k in plan.keys]
        return next((e for e in elements if [e.get(k) for k in plan.keys] == wanted), None)
    if known in elements:
        # Of several equal ones it is the one that has not moved.
        at_its_place = position < len(elements) and elements[position] == known
        return elements[position if at_its_place else elements.index(known)]
    return elements[position] if len(elements) == length else None
