"""Reads the `data` of a ConnectionInfo into a driver's own struct, with every mistake told at once.

One volume is described by many: the specification writes `targetPortal`, OpenStack `target_portal`, some drivers
`noremovehost`. Keys are therefore compared without case and underscores; what still differs is an alias that stands
beside the driver. Keys that the driver does not know are nobody's mistake: storage systems send more than a host needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from quartermaster.connectors.errors import ConnectionDataError
from quartermaster.connectors.secret import Secret
from quartermaster.support.errors import Problem

T = TypeVar("T", bound=msgspec.Struct)

_ABSENT = object()


def decode(kind: type[T], data: Mapping[str, Any], *, driver: str, aliases: Mapping[str, str] | None = None) -> T:
    """`aliases` leads from a key as it may be written (`conf.server_ip` lies in an object) to the field's name."""
    values, problems = _collect(data, aliases or {})
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = values.get(squash(field.name), _ABSENT)
        optional = not field.required
        if value is _ABSENT or value == "" or (value is None and optional):
            if not optional:
                what = "is missing" if value is _ABSENT else "is empty"
                problems.append(Problem(f"data.{field.encode_name}", what, "the storage system has to give it"))
            continue
        try:
            made[field.name] = msgspec.convert(value, field.type, strict=False, dec_hook=_decode_secret)
        except msgspec.ValidationError as error:
            # The text of msgspec names types and never values, so no secret can be in it.
            wanted = str(error).partition(" - at ")[0]
            problems.append(Problem(f"data.{field.encode_name}", wanted[0].lower() + wanted[1:]))
    if not problems:
        try:
            return kind(**made)
        except ValueError as error:  # from the struct's own __post_init__
            problems.append(Problem("data", str(error)))
    raise ConnectionDataError(f"cannot use the connection data of {driver}", problems)


def to_map(data: msgspec.Struct) -> dict[str, Any]:
    """The struct as the `data` of a ConnectionInfo, secrets included: this is what goes over the wire."""
    found: dict[str, Any] = msgspec.to_builtins(data, enc_hook=_reveal)
    return found


def squash(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def lookup(data: Mapping[str, Any], *keys: str) -> str:
    """The text of the first of these keys that is there and not empty, in any spelling."""
    for key in keys:
        wanted = squash(key)
        for name, value in data.items():
            if squash(name) == wanted and isinstance(value, str | int) and str(value):
                return str(value)
    return ""


def _collect(data: Mapping[str, Any], aliases: Mapping[str, str]) -> tuple[dict[str, Any], list[Problem]]:
    """Values by squashed field name. Two spellings of one key must not contradict each other."""
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
