"""What is wrong with a document, all of it, in words that people use.

This is the slow way, taken when `fastcheck` has said that something is wrong: a walk along the schema of the kind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from quartermaster.resources.declare import PATTERN_SENTENCES, QUANTITY_PATTERN
from quartermaster.resources.fastcheck import VALUE_CHECKS, element_name, python_pattern
from quartermaster.resources.paths import join
from quartermaster.resources.schema import INT_OR_STRING, LIST_KEYS, LIST_TYPE, OPEN, VALIDATIONS, Schema
from quartermaster.support.errors import Problem

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map of fields",
}
_PLURALS = {"string": "text", "integer": "whole numbers", "number": "numbers", "object": "maps of fields"}
_INT64 = 2**63
_SHOWN_TEXT = 60


def explain(value: Any, schema: Schema, path: str = "", *, unknown_ok: bool = False) -> Iterator[Problem]:
    """Every way in which the value does not fit the schema."""
    if schema.get(INT_OR_STRING):
        yield from _explain_quantity(value, schema, path)
        return
    kind = schema.get("type")
    if kind is None:
        return
    if not _is(value, kind):
        yield _wrong_type(value, schema, path)
    elif kind == "object":
        yield from _explain_object(value, schema, path, unknown_ok)
    elif kind == "array":
        yield from _explain_list(value, schema, path, unknown_ok)
    elif kind == "string":
        yield from _explain_text(value, schema, path)
    elif kind in ("integer", "number"):
        yield from _explain_number(value, schema, path)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, "" if none is."""
    known = list(known)
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if found:
        return found[0]
    folded = {re.sub(r"[-_]", "", k).lower(): k for k in known}
    return folded.get(re.sub(r"[-_]", "", name).lower(), "")


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
    return isinstance(value, dict)


def _explain_object(value: dict[Any, Any], schema: Schema, path: str, unknown_ok: bool) -> Iterator[Problem]:
    properties: dict[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield Problem(join(path, name), "is missing", _example(properties[name]))
    values = schema.get("additionalProperties")
    for name, child in value.items():
        if not isinstance(name, str):
            yield Problem(join(path, str(name)), "the name of a field must be text", f'write "{name}" in quotes')
        elif name in properties:
            yield from explain(child, properties[name], join(path, name), unknown_ok=unknown_ok)
        elif values:
            yield from explain(child, values, join(path, name), unknown_ok=unknown_ok)
        elif not unknown_ok and properties and not schema.get(OPEN):
            yield _unknown(name, properties, path)


def misspelt(value: Any, schema: Schema, path: str = "") -> Iterator[Problem]:
    """Fields that resemble a known one where others are allowed too: perhaps another program's, perhaps a slip."""
    if isinstance(value, dict):
        properties: dict[str, Schema] = schema.get("properties", {})
        for name, child in value.items():
            if name in properties:
                yield from misspelt(child, properties[name], join(path, name))
            elif schema.get(OPEN) and isinstance(name, str) and nearest(name, properties):
                yield _unknown(name, properties, path)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from misspelt(item, schema.get("items", {}), join(path, position))


def _unknown(name: str, properties: dict[str, Schema], path: str) -> Problem:
    near = nearest(name, properties)
    if near:
        return Problem(join(path, name), "unknown field", f'did you mean "{near}"?')
    for section, child in properties.items():
        if name in child.get("properties", {}):
            return Problem(join(path, name), "unknown field", f"it belongs under {join(path, section)}")
    return Problem(join(path, name), "unknown field", "known are " + ", ".join(properties))


def _explain_list(value: list[Any], schema: Schema, path: str, unknown_ok: bool) -> Iterator[Problem]:
    if (limit := schema.get("maxItems")) is not None and len(value) > limit:
        yield Problem(path, f"must have at most {limit} elements, has {len(value)}")
    wrong = False
    for position, item in enumerate(value):
        for problem in explain(item, schema["items"], join(path, position), unknown_ok=unknown_ok):
            wrong = True
            yield problem
    if not wrong and schema.get(LIST_TYPE) in ("map", "set"):
        keys = schema.get(LIST_KEYS)
        first: dict[Any, int] = {}
        for position, item in enumerate(value):
            name = element_name(item, keys)
            if first.setdefault(name, position) != position:
                what = " and ".join(keys) if keys else "value"
                yield Problem(join(path, position), f"has the same {what} as {join(path, first[name])}", "remove one")


def _explain_text(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    if (choices := schema.get("enum")) and value not in choices:
        near = nearest(value, choices)
        listed = ", ".join(choices)
        yield Problem(path, f'must be one of {listed}; is "{_short(value)}"', f'did you mean "{near}"?' if near else "")
        return
    if value == "" and (schema.get("minLength") or schema.get("pattern")):
        yield Problem(path, "must not be empty", "give it a value, or leave the field out")
        return
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield Problem(path, f"must be at most {most} characters, has {len(value)}")
    if (pattern := schema.get("pattern")) and not re.search(python_pattern(pattern), value):
        yield Problem(path, f'{PATTERN_SENTENCES.get(pattern, f"must match {pattern}")}; is "{_short(value)}"')
    if schema.get("format") == "date-time" and not _is_time(value):
        yield Problem(path, f'must be a time, is "{_short(value)}"', "for example 2024-05-01T12:00:00Z")
    for rule in schema.get(VALIDATIONS, ()):
        check = VALUE_CHECKS.get(rule["rule"])
        if check is not None and not check(value):
            yield Problem(path, f'{rule["message"]}, is "{_short(value)}"', "for example 10.10.10.100 or fd00::1")


def _explain_number(value: float, schema: Schema, path: str) -> Iterator[Problem]:
    least, greatest = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        yield Problem(path, f"must be at least {least}, is {value}")
    if greatest is not None and value > greatest:
        yield Problem(path, f"must be at most {greatest}, is {value}")
    if schema["type"] == "integer" and not -_INT64 <= value < _INT64:
        yield Problem(path, f"must fit into 64 bits, is {value}")


def _explain_quantity(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    quantity = schema.get("pattern") == QUANTITY_PATTERN
    what = "a quantity" if quantity else "a whole number or text"
    fix = "for example 10Gi" if quantity else ""
    if isinstance(value, str):
        if "pattern" in schema and not re.search(python_pattern(schema["pattern"]), value):
            yield Problem(path, f'must be {what}, is "{_short(value)}"', _mended_quantity(value) or fix)
    elif isinstance(value, float) and {"type": "number"} not in schema.get("anyOf", ()):
        yield Problem(path, f"must be {what}, is the number {value}", f'put it in quotes: "{value}"')
    elif isinstance(value, bool) or not isinstance(value, int | float):
        yield Problem(path, f"must be {what}, is {_words(value)}", fix)


def _mended_quantity(text: str) -> str:
    """What was meant by 10GB, 10 Gi, 10gi."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgtpe])(i?)(b?)\s*", text, re.IGNORECASE)
    if match is None:
        return ""
    number, unit, binary, _ = match.groups()
    decimal = "k" if unit.lower() == "k" else unit.upper()
    return f"write {number}{unit.upper()}i" if binary else f"write {number}{unit.upper()}i or {number}{decimal}"


def _wrong_type(value: Any, schema: Schema, path: str) -> Problem:
    kind = schema["type"]
    wanted = _WORDS[kind]
    if kind == "array" and (items := _PLURALS.get(schema["items"].get("type", ""))):
        wanted = f"a list of {items}"
    if kind == "object" and schema.get("additionalProperties", {}).get("type") == "string":
        wanted = "a map of text"
    return Problem(path, f"must be {wanted}, is {_words(value)}", _fix_of_type(value, schema))


def _fix_of_type(value: Any, schema: Schema) -> str:
    if value is None:
        return "give it a value, or leave the field out"
    fix = ""
    match schema["type"]:
        case "array" if not isinstance(value, dict) and _is(value, schema["items"].get("type", "object")):
            fix = f"write [{_short(str(value))}]"
        case "string" if isinstance(value, bool | int | float):
            fix = f'put it in quotes: "{str(value).lower()}"'
        case "integer" | "number" if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
            fix = f"remove the quotes: {value}"
        case "boolean" if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
            fix = f"write {'true' if value.lower() in ('true', 'yes') else 'false'} without quotes"
        case "object" if isinstance(value, str) and (match := re.match(r"([\w.-]+):(\S+)", value)):
            fix = f"put a space after the colon: {match[1]}: {match[2]}"
    return fix or _example(schema)


def _example(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    description: str = schema.get("description", "")
    return description[:1].lower() + description[1:].rstrip(".") if description else ""


def _words(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the text "{_short(value)}"'
    return "a list" if isinstance(value, list) else "a map of fields"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "…"


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
