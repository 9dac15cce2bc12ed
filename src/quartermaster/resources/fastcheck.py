"""Whether a document is fine, quickly: yes or no, without saying what is wrong.

The schema is compiled once per kind into a msgspec type with every constraint in it, which checks a document in a few
microseconds of C, and into a small tree of functions for what msgspec cannot say. `validation` explains.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quartermaster.resources.model import Object
from quartermaster.resources.schema import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    OPEN,
    VALIDATIONS,
    Schema,
    full_schema_of,
)

_Check = Callable[[Any], bool]
_INT64 = 2**63
# By the identity of the schema, which lives as long as the program; kinds share the one of metadata.
_STRUCTS: dict[tuple[int, bool], Any] = {}


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an address with a zone is of one host only


# The checks that are declared in CEL, in Python.
VALUE_CHECKS: dict[str, Callable[[str], bool]] = {"isIP(self)": is_ip}


@cache
def checker_of(cls: type[Object], unknown_ok: bool) -> _Check:
    """A function that says whether a document fits the schema of its kind."""
    schema = full_schema_of(cls)
    twin = _type_of(schema, unknown_ok, cls.__name__)
    further = _further(schema)
    convert = msgspec.convert

    def check(document: Any) -> bool:
        try:
            convert(document, twin)
        except msgspec.ValidationError:
            return False
        return further is None or further(document)

    return check


def python_pattern(pattern: str) -> str:
    """Python's $ also matches before a last line break, which the API server's does not."""
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


def _type_of(schema: Schema, unknown_ok: bool, name: str) -> Any:
    if schema.get(INT_OR_STRING):
        text = Annotated[str, Meta(pattern=python_pattern(schema["pattern"]))] if "pattern" in schema else str
        return text | int | float if {"type": "number"} in schema["anyOf"] else text | int
    match schema.get("type"):
        case "object" | "array":
            return _container_type(schema, unknown_ok, name)
        case "string":
            return _text_type(schema)
        case "integer":
            return Annotated[int, Meta(ge=schema.get("minimum", -_INT64), le=schema.get("maximum", _INT64 - 1))]
        case "number":
            return Annotated[float, Meta(ge=schema.get("minimum"), le=schema.get("maximum"))]
    return bool if schema.get("type") == "boolean" else Any


def _container_type(schema: Schema, unknown_ok: bool, name: str) -> Any:
    if "items" in schema:
        item = _type_of(schema["items"], unknown_ok, name)
        limit = schema.get("maxItems")
        return Annotated[list[item], Meta(max_length=limit)] if limit else list[item]  # type: ignore[valid-type]
    if "properties" in schema:
        key = (id(schema), unknown_ok)
        if key not in _STRUCTS:
            _STRUCTS[key] = _struct_of(schema, unknown_ok, name)
        return _STRUCTS[key]
    values = schema.get("additionalProperties")
    return dict[str, _type_of(values, unknown_ok, name)] if values else dict[str, Any]  # type: ignore[misc]


def _text_type(schema: Schema) -> Any:
    if choices := schema.get("enum"):
        return Literal[tuple(choices)]
    if schema.get("format") == "date-time":
        return Annotated[datetime, Meta(tz=True)]
    pattern = schema.get("pattern")
    return Annotated[
        str,
        Meta(
            min_length=schema.get("minLength"),
            max_length=schema.get("maxLength"),
            pattern=python_pattern(pattern) if pattern else None,
        ),
    ]


def _struct_of(schema: Schema, unknown_ok: bool, name: str) -> Any:
    required = schema.get("required", ())
    fields: list[Any] = []
    renamed = {}
    for position, (spelled, child) in enumerate(schema["properties"].items()):
        attribute = f"f{position}"
        renamed[attribute] = spelled
        kind = _type_of(child, unknown_ok, spelled)
        fields.append(
            (attribute, kind) if spelled in required else (attribute, kind | msgspec.UnsetType, msgspec.UNSET)
        )
    return msgspec.defstruct(
        name,
        fields,
        rename=renamed,
        kw_only=True,
        forbid_unknown_fields=not (unknown_ok or schema.get(OPEN)),
        gc=False,
    )


def _further(schema: Schema) -> _Check | None:
    """What the type does not say: values that are checked by a function, elements that must differ."""
    if "properties" in schema:
        checks = {name: check for name, child in schema["properties"].items() if (check := _further(child))}
        if not checks:
            return None
        return lambda value: all(check(value[name]) for name, check in checks.items() if name in value)
    if values := schema.get("additionalProperties"):
        inner = _further(values)
        return (lambda value: all(inner(child) for child in value.values())) if inner else None
    if "items" in schema:
        return _further_of_list(schema)
    checks_of_value = [
        VALUE_CHECKS[rule["rule"]] for rule in schema.get(VALIDATIONS, ()) if rule["rule"] in VALUE_CHECKS
    ]
    return (lambda value: all(check(value) for check in checks_of_value)) if checks_of_value else None


def _further_of_list(schema: Schema) -> _Check | None:
    inner = _further(schema["items"])
    keys = schema.get(LIST_KEYS)
    if schema.get(LIST_TYPE) not in ("map", "set"):
        return (lambda value: all(inner(item) for item in value)) if inner else None

    def check(value: Any) -> bool:
        if len(value) > 1:
            names = [element_name(item, keys) for item in value]
            if len(set(names)) != len(names):
                return False
        return inner is None or all(inner(item) for item in value)

    return check


def element_name(item: Any, keys: list[str] | None) -> Any:
    """By what an element of a set or of a list with keys is told apart."""
    return tuple(item.get(key) for key in keys) if keys else item
