"""Reads the `data` of a ConnectionInfo into a driver's own struct, with every mistake told at once.

One volume is described by many: the specification writes `targetPortal`, OpenStack `target_portal`, some drivers
`noremovehost`. Keys are therefore compared without case and underscores; what still differs is an alias that stands
beside the driver. Keys that the driver does not know are nobody's mistake: storage systems send more than a host needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

import msgspec

from quartermaster.connectors.errors import ConnectionDataError
from quartermaster.connectors.mistakes import MistakesError, squash
from quartermaster.connectors.secret import Secret
from quartermaster.support.errors import Problem

T = TypeVar("T", bound=msgspec.Struct)

_ABSENT = object()
_TYPES = re.compile(r"Expected `(.+)`, got `(.+)`")  # as msgspec says it
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_EXAMPLES = {"str": '"text"', "int": "1", "float": "1.5", "bool": "true", "array": '["text"]', "object": "{}"}


def decode(
    kind: type[T],
    data: Mapping[str, Any],
    *,
    driver: str,
    aliases: Mapping[str, str] | None = None,
    beside: Iterable[Problem] = (),
) -> T:
    """`aliases` leads from a key as it may be written (`conf.server_ip` lies in an object) to the field's name.

    `beside` are mistakes that were found outside of the data, to be told with those in them.
    """
    values, problems = _collect(data, aliases or {})
    problems = [*beside, *problems]
    made: dict[str, Any] = {}
    wrong: dict[str, Any] = {}  # keys that have no value that could be used, with their types
    mistyped: set[str] = set()
    for field in msgspec.structs.fields(kind):
        value = values.get(squash(field.name), _ABSENT)
        optional = not field.required
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if _has_nul(value):
            problems.append(Problem(f"data.{field.encode_name}", "has a NUL character in it", "leave it out"))
            wrong[field.encode_name] = field
            continue
        if value is _ABSENT or value == "" or (value is None and optional):
            if not optional:
                what = "is missing" if value is _ABSENT else "is empty"
                problems.append(Problem(f"data.{field.encode_name}", what, "the storage system has to give it"))
                wrong[field.encode_name] = field
            continue
        try:
            made[field.name] = msgspec.convert(value, field.type, strict=False, dec_hook=_decode_secret)
        except msgspec.ValidationError as error:
            # The text of msgspec names types and never values, so no secret can be in it.
            problems.append(Problem(f"data.{field.encode_name}", *_wanted(field.type, str(error))))
            mistyped.add(problems[-1].path)
            wrong[field.encode_name] = field
    made |= {field.name: _meaningless(field.type) for field in wrong.values() if field.required}
    try:
        found = kind(**made)
    # From the struct's own __post_init__.
    except MistakesError as error:
        told = [_with_example(problem, error) if problem.path in mistyped else problem for problem in problems]
        problems = told + error.without(wrong)
    except Exception as error:
        # What it says of data with mistakes in them may be their fault alone.
        if not problems:
            if not isinstance(error, ValueError):
                raise
            problems.append(Problem("data", str(error), "the storage system has to give something else"))
    else:
        if not problems:
            return found
    raise ConnectionDataError(f"cannot use the connection data of {driver}", problems)


def _with_example(problem: Problem, told: MistakesError) -> Problem:
    """The driver's own example says more than one of the type does."""
    example = told.example(problem.path)
    return Problem(problem.path, problem.message, example) if example else problem


def _meaningless(kind: Any) -> Any:
    """A value for a field that has none, so that checks can look at the others."""
    for value in ("", 0, Secret(), ()):
        try:
            return msgspec.convert(value, kind, dec_hook=_same_secret)
        except (msgspec.ValidationError, ValueError):
            continue
    return None


def _same_secret(_kind: type, value: Any) -> Any:
    if isinstance(value, Secret):
        return value
    raise ValueError("no secret")


def _wanted(kind: Any, text: str) -> tuple[str, str]:
    """What is wrong, with what it should be; and what to write."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [each.value for each in kind]
        return f"is not one of {', '.join(values)}", f'for example "{values[0]}"'
    wanted = text.partition(" - at ")[0]
    found = _TYPES.fullmatch(wanted)
    if found is None:
        return wanted[0].lower() + wanted[1:], "the storage system has to give something else"
    words = found[1].split(" | ")
    expected, given = (" or ".join(_WORDS.get(word, word) for word in part.split(" | ")) for part in found.groups())
    return f"must be {expected}, is {given}", f"for example {next(filter(None, map(_EXAMPLES.get, words)), 'null')}"


def _has_nul(value: Any) -> bool:
    """No file, program or server takes one; some would use what stands before it."""
    if isinstance(value, Mapping):
        return any(map(_has_nul, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def to_map(data: msgspec.Struct) -> dict[str, Any]:
    """The struct as the `data` of a ConnectionInfo, secrets included: this is what goes over the wire.

    Keys with their default are left out, but for those that the struct says are `always` there.
    """
    found: dict[str, Any] = msgspec.to_builtins(data, enc_hook=_reveal)
    always: Mapping[str, type] = getattr(data, "always", {})
    for field in msgspec.structs.fields(data):
        value = getattr(data, field.name)
        # A default that is something stands for nothing that could be written.
        if field.name in always and not (value and value == field.default):
            found[field.encode_name] = always[field.name](value.reveal() if isinstance(value, Secret) else value)
    return found


def lookup(data: Mapping[str, Any], *keys: str) -> str:
    """The text of the first of these keys that is there and not empty, in any spelling."""
    for key in keys:
        wanted = squash(key)
        for name, value in data.items():
            if squash(name) == wanted and isinstance(value, str | int) and str(value):
                return str(value)
    return ""


def _collect(data: Mapping[str, Any], aliases: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Values by plain field name. Two spellings of one key must not contradict each other."""
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    problems: list[Problem] = []
    known = {squash(key): squash(field) for key, field in aliases.items() if "." not in key}
    for key, value in data.items():
        if isinstance(key, str):
            name = known.get(squash(key), squash(key))
            if name in values and values[name] != value and None not in (value, values[name]):
                problems.append(
                    Problem(f"data.{key}", f"says something else than {written[name]}", "leave one of them out")
                )
            elif name not in values or values[name] is None:
                values[name], written[name] = value, key
    for path, field in aliases.items():
        if "." in path:
            value = _walk(data, path.split("."))
            if value is not _ABSENT:
                values.setdefault(squash(field), value)
    return values, problems


def _walk(data: Any, parts: Iterable[str]) -> Any:
    for part in parts:
        if not isinstance(data, Mapping) or part not in data:
            return _ABSENT
        data = data[part]
    return data


def _decode_secret(kind: type, value: Any) -> Any:
    if kind is Secret:
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return Secret(value)
    raise NotImplementedError


def _reveal(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError
