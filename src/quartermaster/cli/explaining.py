"""The schema of a kind as text, laid out as kubectl lays it out."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator
from typing import Any

from quartermaster.cli.tables import Writer
from quartermaster.resources import Object, all_kinds, find, kind_of
from quartermaster.resources.schema import INT_OR_STRING, full_schema_of
from quartermaster.support.errors import UsageError

Schema = dict[str, Any]

_WIDTH = 80


def explain_kinds() -> str:
    """Every kind, with the words that mean it."""
    rows = [
        [info.plural, ",".join(info.short_names), info.api_version, str(info.namespaced).lower(), info.kind]
        for info in map(kind_of, all_kinds())
    ]
    return Writer(["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]).format(rows)


def explain(path: str, *, recursive: bool = False) -> str:
    """One kind, or one field of it: storagenode.spec.glusterfs."""
    kind, steps = _split(path)
    info = kind_of(kind)
    schema = full_schema_of(kind)
    for position, step in enumerate(steps):
        schema = _below(schema, step, ".".join([info.singular, *steps[:position]]))
    lines = [f"GROUP:      {info.group}"] if info.group else []
    lines += [f"KIND:       {info.kind}", f"VERSION:    {info.version}", ""]
    if steps:
        lines += [f"FIELD: {steps[-1]} <{type_name(schema)}>{_default(schema)}", ""]
    lines += ["DESCRIPTION:", *_paragraph(_description(schema), "    ")]
    if not steps and info.short_names:
        lines += [f"    Short names: {', '.join(info.short_names)}."]
    lines += [""]
    lines += _constraints(schema)
    inner = _object(schema)
    if inner.get("properties"):
        lines += ["FIELDS:", *_fields(inner, recursive, 1)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _split(path: str) -> tuple[type[Object], list[str]]:
    """The word before the first dot is a kind; a kind with its group (storagenodes.coreos.com) works as well."""
    parts = path.split(".")
    for length in range(len(parts), 1, -1):
        word = ".".join(parts[:length])
        for kind in all_kinds():
            info = kind_of(kind)
            if info.group and word.lower() in (info.resource, f"{info.singular}.{info.group}"):
                return kind, [part for part in parts[length:] if part]
    return find(parts[0]), [part for part in parts[1:] if part]


def _below(schema: Schema, step: str, where: str) -> Schema:
    inner = _object(schema)
    properties: dict[str, Schema] = inner.get("properties", {})
    if step in properties:
        return properties[step]
    near = difflib.get_close_matches(step, properties, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"it has {', '.join(properties) or 'no fields'}"
    raise UsageError(f'cannot find the field "{step}" in {where}', hint=hint)


def _object(schema: Schema) -> Schema:
    """The schema of the objects in lists and maps, else itself."""
    while True:
        if schema.get("type") == "array":
            schema = schema["items"]
        elif isinstance(schema.get("additionalProperties"), dict):
            schema = schema["additionalProperties"]
        else:
            return schema


def type_name(schema: Schema) -> str:
    """As kubectl writes types: string, []string, map[string]string, []Object."""
    if schema.get(INT_OR_STRING):
        return "IntOrString"
    match schema.get("type"):
        case "array":
            return f"[]{type_name(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map[string]{type_name(schema['additionalProperties'])}"
        case "object":
            return "Object"
        case None:
            return "Any"
        case name:
            return str(name)


def _fields(schema: Schema, recursive: bool, depth: int) -> Iterator[str]:
    indent = "  " * depth
    required = schema.get("required", ())
    for name, field in sorted(schema["properties"].items()):
        mark = " -required-" if name in required else ""
        yield f"{indent}{name}\t<{type_name(field)}>{mark}"
        inner = _object(field)
        if not recursive:
            yield from _enum(field, indent + "  ")
            yield from _paragraph(_description(field), indent + "  ")
            yield ""
        elif inner.get("properties") and name != "metadata":
            yield from _fields(inner, recursive, depth + 1)


def _enum(schema: Schema, indent: str) -> Iterator[str]:
    if values := _object(schema).get("enum"):
        yield f"{indent}enum: {', '.join(map(str, values))}"


def _constraints(schema: Schema) -> list[str]:
    """What a value must be, where there are no fields to show it at."""
    lines = list(_enum(schema, "    "))
    words = {
        "minimum": "at least",
        "maximum": "at most",
        "maxLength": "characters at most",
        "maxItems": "items at most",
    }
    for key, text in words.items():
        for level in (schema, _object(schema)):
            if key in level and (line := f"    {text}: {level[key]}") not in lines:
                lines.append(line)
    return [*lines, ""] if lines else []


def _default(schema: Schema) -> str:
    return f", default {schema['default']}" if "default" in schema else ""


def _description(schema: Schema) -> str:
    text = str(schema.get("description") or _object(schema).get("description") or "<no description>")
    return text + (f" Default: {schema['default']}." if "default" in schema else "")


def _paragraph(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
