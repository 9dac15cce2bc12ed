"""A structural schema in the form in which merging asks about it: what is granular, what is owned as a whole.

The schema is read once per kind. As on an API server, `metadata` always has the shape that Kubernetes gives it,
whatever the schema says, and a value without a declared type may be a scalar, a list (owned as a whole) or an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from quartermaster.stores.objects.fields import (
    FieldSet,
    children_of,
    field_step,
    is_member,
    key_step,
    node_of,
    spell,
    value_step,
)
from quartermaster.support.errors import Problem

Shape = Literal["map", "scalar", "list"]
Schema = Mapping[str, Any]


class Absent:
    """Not there at all, which is not the same as null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class MapType:
    """An object: its declared fields, the type of all others (None: there are none), and whether it is one whole."""

    __slots__ = ("atomic", "element", "fields")

    def __init__(self, fields: dict[str, Type], element: Type | None, atomic: bool) -> None:
        self.fields = fields
        self.element = element
        self.atomic = atomic

    def child(self, name: str) -> Type:
        """A field that a newer version wrote is unknown to us and kept, with a type deduced from its value."""
        return self.fields.get(name) or self.element or DEDUCED


class ListType:
    """A list: one whole, or a set of scalars (no keys), or items found by their keys."""

    __slots__ = ("atomic", "defaults", "element", "keys")

    def __init__(self, element: Type, atomic: bool, keys: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self.element = element
        self.atomic = atomic
        self.keys = keys
        self.defaults = defaults

    def step(self, item: Any) -> str | None:
        """How the item is found in the list, None if it cannot be."""
        if not self.keys:
            return None if item is None or isinstance(item, dict | list) else value_step(item)
        if not isinstance(item, dict):
            return None
        keys = []
        for key in self.keys:
            if key in item:
                keys.append((key, item[key]))
            elif key in self.defaults:
                keys.append((key, self.defaults[key]))
        return key_step(keys) if keys else None

    def steps(self, items: list[Any]) -> Iterator[tuple[str, Any]]:
        """Items with their steps; what has none cannot be owned and is left out."""
        for item in items:
            step = self.step(item)
            if step is not None:
                yield step, item


class Type:
    """What a value may be. More than one shape is possible only where the schema names none."""

    __slots__ = ("exact", "list", "map", "preferred", "scalar")

    def __init__(self, *, map: MapType | None = None, scalar: str = "", list: ListType | None = None) -> None:
        self.map = map
        self.scalar = scalar
        self.list = list
        self.preferred: Shape = "map" if map is not None else "scalar" if scalar else "list"
        # Python holds True and 1 for equal. Where a schema keeps them apart, plain comparison is enough, and fast.
        self.exact = True

    def shape(self, value: Any) -> Shape:
        if isinstance(value, dict):
            return "map" if self.map is not None else self.preferred
        if isinstance(value, list):
            return "list" if self.list is not None else self.preferred
        if value is None or value is ABSENT:
            return self.preferred
        return "scalar" if self.scalar else self.preferred


def _untyped(*, atomic: bool) -> Type:
    result = Type(scalar="untyped")
    whole = result if atomic else UNTYPED
    result.list = ListType(whole, True, (), {})
    result.map = MapType({}, result, atomic)
    result.preferred = "map"
    result.exact = False
    return result


UNTYPED: Final = _untyped(atomic=True)
DEDUCED: Final = _untyped(atomic=False)

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_REFERENCE = dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT)
_REFERENCE |= dict.fromkeys(("controller", "blockOwnerDeletion"), _FLAG)
METADATA: Final[Schema] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _NUMBER),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TIME),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": _REFERENCE},
        },
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        # Never owned, and compared as a whole: what is in an entry does not matter here.
        "managedFields": {"type": "array", "items": _TEXT},
    },
}


_COMPILED: dict[int, tuple[Schema, Type]] = {}
_COMPILED_LIMIT = 256


def type_of(schema: Schema) -> Type:
    """The type of a kind's documents. It is kept per schema object, which must not be changed afterwards."""
    known = _COMPILED.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_COMPILED) >= _COMPILED_LIMIT:
            _COMPILED.clear()
        properties = {**schema.get("properties", {}), "apiVersion": _TEXT, "kind": _TEXT, "metadata": METADATA}
        known = schema, _read({**schema, "type": "object", "properties": properties}, preserve=False)
        _COMPILED[id(schema)] = known
    return known[1]


def _read(schema: Schema, *, preserve: bool) -> Type:
    preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
    kind = schema.get("type", "")
    if kind == "object":
        result = Type(map=_read_map(schema, preserve))
    elif kind == "array":
        result = Type(list=_read_list(schema, preserve))
    elif kind in ("integer", "number"):
        result = Type(scalar="numeric")
    elif kind == "boolean":
        result = Type(scalar="boolean")
    elif kind == "string":
        result = Type(scalar="string" if schema.get("format", "") in ("", "byte") else "untyped")
    else:
        result = Type(map=_read_map(schema, preserve), scalar="untyped", list=_read_list(schema, preserve))
        result.exact = schema.get("x-kubernetes-int-or-string") is True
        return result
    result.exact = all(part.exact for part in _parts(result))
    return result


def _read_map(schema: Schema, preserve: bool) -> MapType:
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    element: Type | None = None
    if isinstance(additional, Mapping):
        element = _read(additional, preserve=preserve)
    elif additional is True or (additional is None and (preserve or not properties)):
        element = DEDUCED
    fields = {name: _read(part, preserve=preserve) for name, part in properties.items()}
    return MapType(fields, element, schema.get("x-kubernetes-map-type") == "atomic")


def _read_list(schema: Schema, preserve: bool) -> ListType:
    items = schema.get("items")
    kind = schema.get("x-kubernetes-list-type", "atomic")
    keys = tuple(sorted(schema.get("x-kubernetes-list-map-keys", ()))) if kind == "map" else ()
    properties = (items or {}).get("properties", {})
    defaults = {key: properties[key]["default"] for key in keys if properties.get(key, {}).get("default") is not None}
    element = UNTYPED if items is None else _read(items, preserve=preserve)
    return ListType(element, kind not in ("set", "map"), keys, defaults)


def _parts(type: Type) -> Iterator[Type]:
    if type.map is not None:
        yield from type.map.fields.values()
        if type.map.element is not None:
            yield type.map.element
    if type.list is not None:
        yield type.list.element


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if left != right:
        return False
    if isinstance(left, dict):
        return all(same(part, right[name]) for name, part in left.items())
    if isinstance(left, list):
        return all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool)


def fields_of(type: Type, value: Any) -> FieldSet:
    """Every leaf and every item of a list that the value mentions."""
    return _fields_of(type, value)[1]


def _fields_of(type: Type, value: Any) -> tuple[bool, FieldSet]:
    shape = type.shape(value)
    if shape == "map" and type.map is not None:
        if type.map.atomic:
            return True, {}
        return False, _fields_of_map(type.map, value) if isinstance(value, dict) else {}
    if shape == "list" and type.list is not None:
        if type.list.atomic:
            return True, {}
        return False, _fields_of_list(type.list, value) if isinstance(value, list) else {}
    return True, {}


def _fields_of_map(type: MapType, value: dict[str, Any]) -> FieldSet:
    result: FieldSet = {}
    for name, child in value.items():
        member, children = _fields_of(type.child(name), child)
        if child is None or child == {} or name not in type.fields:
            member = True
        node = node_of(member, children)
        if node is not None:
            result[field_step(name)] = node
    return result


def _fields_of_list(type: ListType, value: list[Any]) -> FieldSet:
    result: FieldSet = {}
    for step, item in type.steps(value):
        # Of items that are there twice nobody can tell which one is meant: they are owned as a whole.
        children = {} if step in result else _fields_of(type.element, item)[1]
        result[step] = node_of(True, children) or {}
    return result


def with_named_fields(type: Type | None, fields: FieldSet) -> FieldSet:
    """The set, and every declared field that has something of the set below it."""
    result: FieldSet = {}
    for step, node in fields.items():
        member, children = is_member(node), children_of(node)
        if children:
            part: Type | None = None
            if step[:2] == "f:" and type is not None and type.map is not None:
                name = step[2:]
                part = type.map.fields.get(name)
                member = member or part is not None
                part = part or type.map.element
            elif step[:2] == "k:" and type is not None and type.list is not None:
                part = type.list.element
            children = with_named_fields(part, children)
        result[step] = node_of(member, children) or {}
    return result


def problems_of(type: Type, value: Any, path: tuple[str, ...] = ()) -> Iterator[Problem]:
    """What keeps a document from being merged. Everything else that may be wrong with it is validation's to say."""
    shape = type.shape(value)
    if value is None:
        return
    if shape == "map" and type.map is not None:
        if not isinstance(value, dict):
            yield Problem(spell(path), f"must be an object, not {_describe(value)}")
            return
        for name, child in value.items():
            where = (*path, field_step(name))
            if name not in type.map.fields and type.map.element is None:
                yield Problem(spell(where), "is not a field of the schema")
            else:
                yield from problems_of(type.map.child(name), child, where)
    elif shape == "list" and type.list is not None:
        if isinstance(value, list):
            yield from _problems_of_items(type.list, value, path)
        else:
            yield Problem(spell(path), f"must be a list, not {_describe(value)}")
    elif not _fits(type.scalar, value):
        yield Problem(spell(path), f"must be {_SCALARS[type.scalar]}, not {_describe(value)}")


def _problems_of_items(type: ListType, items: list[Any], path: tuple[str, ...]) -> Iterator[Problem]:
    seen = set()
    for index, item in enumerate(items):
        step = f"i:{index}"
        if not type.atomic:
            known = type.step(item)
            if known is None:
                wanted = "an object with the key " + " or ".join(type.keys) if type.keys else "a scalar"
                yield Problem(spell((*path, step)), f"must be {wanted}")
                continue
            step = known
            if step in seen:
                yield Problem(spell((*path, step)), "is there more than once", "keep one of them")
            seen.add(step)
        yield from problems_of(type.element, item, (*path, step))


_SCALARS = {"numeric": "a number", "boolean": "true or false", "string": "a string", "untyped": "a scalar"}


def _fits(scalar: str, value: Any) -> bool:
    if scalar == "numeric":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "boolean":
        return isinstance(value, bool)
    if scalar == "string":
        return isinstance(value, str)
    return not isinstance(value, dict | list)


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else repr(value)
