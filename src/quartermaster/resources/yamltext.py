"""YAML as people write it, into documents: with the line of every field, and without what YAML can do to a program.

Built from parser events with a stack of our own: a deeply nested text is refused rather than overflowing the C stack,
aliases are copied within a budget, a key that is given twice is a mistake, and only what JSON can hold comes out.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from quartermaster.resources.paths import join, parent
from quartermaster.support.errors import Problem

DEPTH_LIMIT = 100
ALIAS_BUDGET = 100_000
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Lines:
    """On which line a path stands; a path that is not there is on the line of what would contain it."""

    tree: Place

    def line_of(self, path: str) -> int:
        known = self._known
        while path and path not in known:
            path = parent(path)
        return known.get(path, self.tree.line)

    def below(self, *steps: str | int) -> Lines:
        """The lines of a part of the document."""
        place: Place | None = self.tree
        for step in steps:
            place = place.children.get(step) if place is not None else None
        return Lines(place or self.tree)

    @cached_property
    def _known(self) -> dict[str, int]:
        found: dict[str, int] = {}
        waiting = [("", self.tree)]
        while waiting:
            path, place = waiting.pop()
            found[path] = place.line
            waiting.extend((join(path, step), child) for step, child in place.children.items())
        return found


@dataclass(frozen=True)
class Place:
    line: int
    children: dict[str | int, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Parsed:
    document: Any
    lines: Lines
    problems: tuple[Problem, ...]


class TooDeepError(ValueError):
    """Nested beyond what any object of ours can be."""

    def __init__(self, line: int) -> None:
        super().__init__(f"nested more than {DEPTH_LIMIT} levels deep")
        self.line = line


class TooManyAliasesError(ValueError):
    """Aliases that would grow beyond all measure."""

    def __init__(self, line: int) -> None:
        super().__init__("aliases repeat too much")
        self.line = line


def parse_yaml(text: str, *, first_line: int = 1) -> Iterator[Parsed]:
    """The documents in a text. Raises yaml.YAMLError where it is broken, and the errors above."""
    loader = yaml.CSafeLoader(text)
    try:
        while True:
            event = loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            if isinstance(event, yaml.DocumentStartEvent):
                yield _Builder(loader, first_line).build()
    finally:
        loader.dispose()


@dataclass
class _Open:
    """A mapping or a list that has not ended yet."""

    value: Any
    place: Place
    anchor: str | None
    path: str
    size: int = 1
    key: Any = None
    key_line: int = 0
    waits_for_key: bool = True
    merges: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Anchored:
    value: Any
    place: Place
    size: int


class _Builder:
    """Builds one document."""

    def __init__(self, loader: Any, first_line: int) -> None:
        self._loader = loader
        self._first_line = first_line
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._problems: list[Problem] = []
        self._copied = 0
        self._root: tuple[Any, Place] = (None, Place(first_line))

    def build(self) -> Parsed:
        while True:
            event = self._loader.get_event()
            if isinstance(event, yaml.DocumentEndEvent):
                break
            self._take(event)
        value, place = self._root
        return Parsed(value, Lines(place), tuple(self._problems))

    def _take(self, event: Any) -> None:
        line = event.start_mark.line + self._first_line
        match event:
            case yaml.MappingStartEvent():
                self._open({}, line, event.anchor)
            case yaml.SequenceStartEvent():
                self._open([], line, event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                _merge(done)
                self._finish(done.value, done.place, done.size, done.anchor)
            case yaml.AliasEvent():
                self._alias(event.anchor or "", line)
            case yaml.ScalarEvent():
                self._finish(self._scalar(event, line), Place(line), 1, event.anchor)

    def _open(self, value: Any, line: int, anchor: str | None) -> None:
        if len(self._stack) >= DEPTH_LIMIT:
            raise TooDeepError(line)
        path = self._here() if self._stack else ""
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].waits_for_key:
            self._problems.append(Problem(path, "the name of a field must be text", "put braces in quotes", line))
        self._stack.append(_Open(value, Place(line), anchor, path))

    def _here(self) -> str:
        top = self._stack[-1]
        step = len(top.value) if isinstance(top.value, list) else str(top.key or "")
        return join(top.path, step)

    def _alias(self, name: str, line: int) -> None:
        anchored = self._anchors.get(name)
        if anchored is None:
            inside = any(part.anchor == name for part in self._stack)
            what = "stands inside its own anchor" if inside else "has no anchor"
            path = self._here() if self._stack else ""
            self._problems.append(Problem(path, f'the alias "*{name}" {what}', "put it in quotes if it is text", line))
            self._finish(None, Place(line), 1, None)
            return
        self._copied += anchored.size
        if self._copied > ALIAS_BUDGET:
            raise TooManyAliasesError(line)
        self._finish(copy.deepcopy(anchored.value), anchored.place, anchored.size, None)

    def _finish(self, value: Any, place: Place, size: int, anchor: str | None) -> None:
        """A value is complete: it is the document, an element, a key or the value of a key."""
        if anchor is not None:
            self._anchors[anchor] = _Anchored(value, place, size)
        if not self._stack:
            self._root = (value, place)
            return
        top = self._stack[-1]
        top.size += size
        if isinstance(top.value, list):
            top.place.children[len(top.value)] = place
            top.value.append(value)
        elif top.waits_for_key:
            top.key, top.key_line, top.waits_for_key = value, place.line, False
        else:
            self._put(top, value, place)
            top.waits_for_key = True

    def _put(self, top: _Open, value: Any, place: Place) -> None:
        if top.key is _MERGE:
            top.merges.append(value)
            return
        key = top.key
        if not isinstance(key, str):
            shown = _as_key(key)
            if not isinstance(key, dict | list):
                fix = f'write "{shown}" in quotes'
                self._problems.append(
                    Problem(join(top.path, shown), f"the name of a field must be text, is {shown}", fix, top.key_line)
                )
            key = shown
        if key in top.value:
            first = top.place.children[key].line
            self._problems.append(
                Problem(join(top.path, key), f"is given twice, first on line {first}", "keep one of them", top.key_line)
            )
        top.value[key] = value
        top.place.children[key] = Place(top.key_line, place.children)

    def _scalar(self, event: Any, line: int) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        try:
            return _SCALARS[tag](event.value)
        except KeyError:
            what = f"the tag {tag.replace(_TAG, '!!')} is not allowed"
        except ValueError:
            what = f'"{event.value}" is not a value that can be stored'
        self._problems.append(Problem(self._here() if self._stack else "", what, "put it in quotes", line))
        return event.value


def _merge(done: _Open) -> None:
    """`<<: *defaults`: what the mapping says itself goes first."""
    for merged in done.merges:
        for source in merged if isinstance(merged, list) else [merged]:
            if isinstance(source, dict):
                for key, value in source.items():
                    done.value.setdefault(key, value)


def _as_key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    return "null" if key is None else str(key)


def _integer(text: str) -> int | str:
    plain = text.replace("_", "").lower()
    if ":" in plain:
        return text  # 10:20 is no number to anybody who writes it today
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    if digits.startswith(("0x", "0b", "0o")):
        return sign * int(digits, 0)
    return sign * int(digits, 8 if len(digits) > 1 and digits.startswith("0") else 10)


def _fraction(text: str) -> float | str:
    if ":" in text:
        return text
    value = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


class _Merge:
    """The key `<<`."""


_MERGE = _Merge()
_SCALARS: dict[str, Any] = {
    _TAG + "str": str,
    _TAG + "int": _integer,
    _TAG + "float": _fraction,
    _TAG + "bool": lambda text: text.lower() in ("true", "yes", "on"),
    _TAG + "null": lambda _: None,
    _TAG + "timestamp": str,
    _TAG + "value": str,
    _TAG + "merge": lambda _: _MERGE,
}

_NO_SPACE = re.compile(r"^(\s*(?:- )?)([A-Za-z0-9_./-]+):(?![\s/:]|$)(\S.*?)\s*$")
_TWO_COLONS = re.compile(r"^(\s*(?:- )?[A-Za-z0-9_./-]+:\s+)([^\s'\"].*:(?:\s.*)?)$")


def explain_broken_yaml(text: str, error: yaml.YAMLError, *, first_line: int = 1) -> Problem:
    """What is wrong with broken YAML, where, and what was probably meant."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem("", f"is not text that YAML allows: {str(error).splitlines()[0]}", "remove it", first_line)
    lines = text.splitlines()
    context = getattr(error, "context_mark", None)
    started = context.line if context is not None else mark.line
    what = str(getattr(error, "problem", "") or "it cannot be read")
    if "flow" in str(getattr(error, "context", "")):
        number = _unclosed(lines, min(mark.line, len(lines) - 1))
        fix = f"the bracket that begins on line {number + first_line} is not closed, or closed too often"
        return Problem("", f"is not YAML: {what}", fix, number + first_line)
    line, fix = _guess(lines, mark, started, what, first_line)
    column = f", column {mark.column + 1}" if line == mark.line else ""
    return Problem("", f"is not YAML{column}: {what}", fix, line + first_line)


def explain_text(text: str, *, first_line: int = 1) -> Problem | None:
    """Why YAML took a whole document for one text: no colon in it has a space after it."""
    for number, row in enumerate(text.splitlines()):
        if match := _NO_SPACE.match(row):
            fix = f"put a space after the colon: {match[2]}: {match[3]}"
            return Problem("", "is one text and not a map of fields", fix, number + first_line)
    return None


def _unclosed(lines: list[str], last: int) -> int:
    """The last line up to here that opens more brackets than it closes."""
    for number in range(last, -1, -1):
        row = lines[number]
        if row.count("[") + row.count("{") > row.count("]") + row.count("}"):
            return number
    return last


def _guess(lines: list[str], mark: Any, started: int, what: str, first_line: int) -> tuple[int, str]:
    """The line that is probably to blame, and how to mend it."""
    suspects = [n for n in range(max(0, min(started, mark.line) - 1), mark.line + 1) if n < len(lines)]
    for number in reversed(suspects):
        if match := _NO_SPACE.match(lines[number]):
            return number, f"put a space after the colon: {match[2]}: {match[3]}"
    here = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return mark.line, "indent with spaces, not with tabs"
    fix = ""
    if "mapping values" in what and (match := _TWO_COLONS.match(here)):
        fix = f"put the value in quotes: {match[1].strip()} '{match[2]}'"
    elif "end of stream" in what:
        return started, f"the quote or bracket that begins on line {started + first_line} is not closed"
    elif "cannot start any token" in what:
        fix = "put the value in quotes"
    elif "expected" in what or "mapping values" in what:
        fix = "look at the indentation: it must be that of the fields beside it"
    return mark.line, fix
