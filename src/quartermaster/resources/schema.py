"""The structural OpenAPI schema of a kind, from its struct and the declarations on the fields.

It serves twice: as the schema of a CRD, and as what our own stores go by (defaults, validation, merging). There is
one for Kubernetes kinds too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from quartermaster.resources.declare import QUANTITY_PATTERN, Immutable
from quartermaster.resources.model import UNKNOWN_KEY, Object, ObjectMeta
from quartermaster.resources.rules import expressions_of

Schema = dict[str, Any]

LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
INT_OR_STRING = "x-kubernetes-int-or-string"
OPEN = "x-kubernetes-preserve-unknown-fields"
VALIDATIONS = "x-kubernetes-validations"

_INNER = ("items", "additionalProperties")

UNCHANGED = "self == oldSelf"

_SCALARS: dict[type[inspect.Type], Schema] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer", "format": "int64"},
    inspect.FloatType: {"type": "number"},
}


@cache
def schema_of(cls: type[Object]) -> Schema:
    """As it stands in a CRD: metadata is left to the API server. Do not change what is returned."""
    schema = _object_schema(cls)
    properties = {
        "apiVersion": {"type": "string", "description": "The group and version of the schema of this object."},
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
    }
    schema["properties"] = {**properties, **{k: v for k, v in schema["properties"].items() if k != "metadata"}}
    rules = [(path, {"rule": e.rule, "message": e.message}) for path, e in expressions_of(cls)]
    for path, rule in [*_presence_rules(cls), *rules]:
        target = schema
        for name in filter(None, path.split(".")):
            target = target["properties"][name]
        target.setdefault(VALIDATIONS, []).append(rule)
    if "status" in schema["properties"]:
        _allow_changes(schema["properties"]["status"])
    return schema


@cache
def full_schema_of(cls: type[Object]) -> Schema:
    """With the schema of metadata: what our own stores go by."""
    schema = schema_of(cls)
    return {**schema, "properties": {**schema["properties"], "metadata": metadata_schema()}}


@cache
def metadata_schema() -> Schema:
    return _object_schema(ObjectMeta)


class ImmutableField(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    mode: Immutable
    default: Any
    optional: bool  # whether it, or an object that it is in, may be absent


@cache
def immutable_fields(cls: type[Object]) -> tuple[ImmutableField, ...]:
    """The fields that are declared so; a status follows what it reports, even where it has a part of a spec in it."""
    return tuple(field for field in _immutable_fields(cls, (), False) if field.path[0] != "status")


def _immutable_fields(cls: type[msgspec.Struct], path: tuple[str, ...], optional: bool) -> Iterator[ImmutableField]:
    info = inspect.type_info(cls)
    for field in info.fields if isinstance(info, inspect.StructType) else ():
        kind, extra = _unwrap(field.type)
        here = (*path, field.encode_name)
        absent = optional or not (field.required or "default" in extra)
        if mode := extra.get("immutable"):
            yield ImmutableField(here, mode, extra.get("default"), absent)
        elif isinstance(kind, inspect.StructType):
            yield from _immutable_fields(kind.cls, here, absent)


def _allow_changes(schema: Schema) -> None:
    rules = [rule for rule in schema.pop(VALIDATIONS, ()) if rule["rule"] != UNCHANGED]
    if rules:
        schema[VALIDATIONS] = rules
    for child in (*schema.get("properties", {}).values(), *(schema[k] for k in _INNER if k in schema)):
        _allow_changes(child)


def described(cls: type[msgspec.Struct]) -> str:
    """What a struct says of itself, on one line."""
    own = cls.__dict__.get("__doc__") or ""
    return " ".join(own.split())


def _object_schema(cls: type[msgspec.Struct]) -> Schema:
    info = inspect.type_info(cls)
    fields = info.fields if isinstance(info, inspect.StructType) else ()
    schema: Schema = {"type": "object"}
    if text := described(cls):
        schema["description"] = text
    fields = tuple(f for f in fields if f.encode_name != UNKNOWN_KEY)
    schema["properties"] = {f.encode_name: _schema(f.type) for f in fields}
    if required := [f.encode_name for f in fields if f.required]:
        schema["required"] = required
    if getattr(cls, "atomic", False):
        schema[MAP_TYPE] = "atomic"
    if getattr(cls, "partial", False):
        schema[OPEN] = True
    return schema


def _presence_rules(cls: type[Object]) -> Iterator[tuple[str, Schema]]:
    """That an immutable field may not come or go is a rule of an object that is always there: of `spec`, or the whole.

    The path of that object comes with it.
    """
    for field in immutable_fields(cls):
        if not field.optional:
            continue
        path = field.path
        root = path[0] if len(path) > 1 else ""
        steps = [cel_name(name) for name in (path[1:] if root else path)]
        before, after = (
            " && ".join(f"has({side}.{'.'.join(steps[: n + 1])})" for n in range(len(steps)))
            for side in ("oldSelf", "self")
        )
        if field.mode == "always":
            rule, what = f"({before}) == ({after})", "cannot be added or removed"
        else:
            rule, what = f"!({before}) || ({after})", "cannot be removed"
        yield root, {"rule": rule, "message": f"{'.'.join(path)} {what}"}


def cel_name(name: str) -> str:
    """A field's name as CEL spells it."""
    for character, spelled in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(character, spelled)
    return name


def _unwrap(info: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """The type without its declarations and without "or None", and all declarations, the outermost ruling."""
    extra: dict[str, Any] = {}
    while True:
        if isinstance(info, inspect.Metadata):
            inner = dict(info.extra or {})
            extra = {**inner, **extra, "schema": {**inner.get("schema", {}), **extra.get("schema", {})}}
            info = info.type
        elif isinstance(info, inspect.UnionType):
            rest = tuple(t for t in info.types if not isinstance(t, inspect.NoneType))
            if len(rest) == len(info.types):
                return info, extra
            info = rest[0] if len(rest) == 1 else inspect.UnionType(rest)
        else:
            return info, extra


def _schema(info: inspect.Type) -> Schema:
    info, extra = _unwrap(info)
    schema = _plain(info, extra)
    schema.update(extra.get("schema", {}))
    if text := extra.get("description"):
        schema = {"description": text, **{k: v for k, v in schema.items() if k != "description"}}
    if "default" in extra:
        schema["default"] = extra["default"]
    if list_type := extra.get("list_type"):
        schema[LIST_TYPE] = list_type
    if keys := extra.get("keys"):
        schema[LIST_KEYS] = list(keys)
    if "atomic_map" in extra:
        schema[MAP_TYPE] = "atomic" if extra["atomic_map"] else "granular"
    rules = list(schema.get(VALIDATIONS, ()))
    if cel := extra.get("cel"):
        rules.append({"rule": cel, "message": CEL_SENTENCES[cel]})
    if extra.get("immutable"):
        rules.append({"rule": UNCHANGED, "message": "cannot be changed"})
    if rules:
        schema[VALIDATIONS] = rules
    return schema


# The checks of one value that are said in CEL; `validation` knows the same in Python.
CEL_SENTENCES = {"isIP(self)": "must be an IP address"}


def _plain(info: inspect.Type, extra: dict[str, Any]) -> Schema:
    if extra.get("quantity") or extra.get("int_or_string"):
        types = ("integer", "number", "string") if extra.get("fraction") else ("integer", "string")
        schema: Schema = {"anyOf": [{"type": name} for name in types], INT_OR_STRING: True}
        return {**schema, "pattern": QUANTITY_PATTERN} if extra.get("quantity") else schema
    if scalar := _SCALARS.get(type(info)):
        return dict(scalar)
    match info:
        case inspect.StructType():
            return _object_schema(info.cls)
        case inspect.VarTupleType() | inspect.ListType():
            return {"type": "array", "items": _schema(info.item_type)}
        case inspect.DictType():
            free = isinstance(info.value_type, inspect.AnyType)
            return {"type": "object", **({OPEN: True} if free else {"additionalProperties": _schema(info.value_type)})}
        case inspect.AnyType():
            return {OPEN: True}
    raise TypeError(f"cannot make a schema of {info}")
