"""Sets of field paths, in the very form in which an API server writes them into `fieldsV1`.

A set is a tree of dicts: each key is one step of a path, an empty dict is a field that belongs to the set, and "."
marks a field that belongs to it beside some of its children. Working on that form saves decoding and encoding on
every write. Sets are values: no function here changes its arguments, and results share parts with them.

    {"f:spec": {"f:zone": {}, "f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}}}}

Steps: `f:` a field by name, `k:` an item of a list by its keys, `v:` an item of a list by its value, `i:` by index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

FieldSet: TypeAlias = dict[str, "FieldSet"]
Path: TypeAlias = tuple[str, ...]

SELF = "."

# What Go's encoder writes differently from ours: HTML is made harmless, and only \n, \r and \t have short forms.
_ESCAPED = re.compile(r"\\\\|\\[bf]|[<>&\u2028\u2029]")
_ESCAPES = {"\\\\": "\\\\", "\\b": "\\u0008", "\\f": "\\u000c"}


def field_step(name: str) -> str:
    return "f:" + name


def value_step(value: Any) -> str:
    return "v:" + _json(value)


def key_step(keys: Sequence[tuple[str, Any]]) -> str:
    """The step to the item with these keys, which must be in the order of their names."""
    return "k:{" + ",".join([f"{_json(name)}:{_json(value)}" for name, value in keys]) + "}"


def _json(value: Any) -> str:
    if isinstance(value, str):
        return _quoted_as_json(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=4096)
def _quoted_as_json(value: str) -> str:
    return _ESCAPED.sub(_escape, msgspec.json.encode(value).decode())


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    return _ESCAPES.get(found) or f"\\u{ord(found):04x}"


def insert(fields: FieldSet, path: Path) -> None:
    """Put one path into a set that is being built: the only function that changes its argument."""
    if not path:
        return
    node = fields
    for step in path[:-1]:
        child = node.get(step)
        if child is None:
            child = node[step] = {}
        elif not child:
            child[SELF] = {}
        node = child
    known = node.get(path[-1])
    if known is None:
        node[path[-1]] = {}
    elif known:
        known[SELF] = {}


def is_member(node: FieldSet) -> bool:
    """Whether the field at this node belongs to the set itself, not only some of its children."""
    return not node or SELF in node


def children_of(node: FieldSet) -> FieldSet:
    return {step: child for step, child in node.items() if step != SELF} if SELF in node else node


def node_of(member: bool, children: FieldSet) -> FieldSet | None:
    """The node for a field, None if neither it nor anything below it belongs to the set."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or left is right:
        return right
    result = dict(left)
    for step, node in right.items():
        known = result.get(step)
        if known is None:
            result[step] = node
        elif known is not node:
            joined = node_of(is_member(known) or is_member(node), union(children_of(known), children_of(node)))
            result[step] = joined if joined is not None else {}
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """What is in `left` and not in `right`; a child is not removed with its parent. Unchanged, it is `left` itself."""
    result: FieldSet = {}
    changed = False
    for step, node in left.items():
        other = right.get(step)
        if other is None:
            result[step] = node
            continue
        member, children = is_member(node), children_of(node)
        kept = difference(children, children_of(other)) if children else children
        if kept is children and not (member and is_member(other)):
            result[step] = node
            continue
        changed = True
        remaining = node_of(member and not is_member(other), kept)
        if remaining is not None:
            result[step] = remaining
    return result if changed else left


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, node in left.items():
        other = right.get(step)
        if other is not None:
            shared = node_of(is_member(node) and is_member(other), intersection(children_of(node), children_of(other)))
            if shared is not None:
                result[step] = shared
    return result


def paths(fields: FieldSet, prefix: Path = ()) -> Iterator[Path]:
    """Every path that belongs to the set, parents before children."""
    for step, node in fields.items():
        path = (*prefix, step)
        if is_member(node):
            yield path
        yield from paths(children_of(node), path)


def ordered(fields: FieldSet) -> FieldSet:
    """The set with its keys in the order in which the API server writes those of custom resources."""
    return {step: ordered(fields[step]) if fields[step] else {} for step in sorted(fields)}


def parse(text: dict[str, Any]) -> FieldSet:
    """A set from `fieldsV1` as somebody else wrote it. Unknown kinds of steps are dropped; what is none at all raises
    ValueError, AttributeError or TypeError."""
    result: FieldSet = {}
    for key, value in text.items():
        if key == SELF:
            continue
        step = _canonical(key)
        if step is not None:
            children = parse(value)
            node = node_of(SELF in value or not children, children)
            result[step] = node if node is not None else {}
    return result


def _canonical(key: str) -> str | None:
    kind, content = key[:2], key[2:]
    if len(kind) < 2 or kind[1] != ":":
        raise ValueError(f"fieldsV1: {key!r} is not a step of a path")
    try:
        if kind == "f:":
            return key
        if kind == "v:":
            return value_step(msgspec.json.decode(content))
        if kind == "k:":
            return key_step(sorted(msgspec.json.decode(content, type=dict[str, Any]).items()))
        return f"i:{int(content)}" if kind == "i:" else None
    except msgspec.DecodeError as error:
        raise ValueError(f"fieldsV1: {key!r} is not a step of a path: {error}") from error


def spell(path: Path) -> str:
    """The path as the API server spells it in a conflict: .spec.conditions[type="Ready"].status"""
    return "".join(_spell_step(step) for step in path)


def _spell_step(step: str) -> str:
    kind, content = step[:2], step[2:]
    if kind == "f:":
        return "." + content
    if kind == "i:":
        return f"[{content}]"
    decoded = msgspec.json.decode(content)
    if kind == "v:":
        return f"[={_spell_value(decoded)}]"
    return "[" + ",".join(f"{name}={_spell_value(value)}" for name, value in decoded.items()) + "]"


def _spell_value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(_quoted(character) for character in value) + '"'
    return _json(value)


_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_QUOTED |= {"\\": "\\\\", '"': '\\"'}


def _quoted(character: str) -> str:
    if character in _QUOTED:
        return _QUOTED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
