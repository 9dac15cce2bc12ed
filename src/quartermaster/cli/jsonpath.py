r"""The part of kubectl's JSON path templates that people use, and the printer columns of CRDs.

    {.items[*].metadata.name}                       one value after the other, with blanks between
    {range .items[*]}{.metadata.name}{"\n"}{end}    a text for each
    {.spec.devices[0]} {.spec.devices[-1]} {.spec.devices[0:2]} {..name}
    {.metadata.labels.kubernetes\.io/hostname} {.metadata.labels['kubernetes.io/hostname']}
    {.spec['glusterfs','ceph'].cluster}             whichever of them is there, in this order
    {.status.conditions[?(@.type=="Ready")].status}

What is not there prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from quartermaster.support.errors import UsageError

Step = Callable[[Any], Iterator[Any]]

_NAME = re.compile(r"(?:[^\s.\[\]{}()\\'\"*=!<>]|\\.)+")
_SLICE = re.compile(r"\s*(-?\d+)?\s*(:)?\s*(-?\d+)?\s*(?::\s*(\d+)\s*)?")
_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class Path:
    """One path, ready to be asked of many documents."""

    def __init__(self, steps: Sequence[Step], *, from_root: bool) -> None:
        self._steps = steps
        self._from_root = from_root

    def find(self, document: Any, root: Any = None) -> list[Any]:
        """Every value that the path leads to, in order."""
        values = [root if self._from_root and root is not None else document]
        for step in self._steps:
            values = [found for value in values for found in step(value)]
        return values


class _Range(msgspec.Struct, frozen=True):
    over: Path
    body: tuple[_Part, ...]


_Part = str | Path | _Range


class Template:
    """A text with paths in braces."""

    def __init__(self, parts: tuple[_Part, ...]) -> None:
        self._parts = parts

    def render(self, document: Any) -> str:
        return "".join(_render(self._parts, document, document))


def parse_template(text: str) -> Template:
    """UsageError says where a template cannot be read."""
    if "{" not in text and text.startswith((".", "$", "[")):
        return Template((parse_path(text),))
    parts, _ = _Parser(text).parts(nested=False)
    return Template(parts)


def parse_path(text: str) -> Path:
    """A path alone, with or without braces: a printer column, or what to sort by."""
    stripped = text.strip()
    if stripped.startswith("{") and stripped.endswith("}"):
        stripped = stripped[1:-1].strip()
    if stripped and stripped[0] not in ".$[@":
        stripped = f".{stripped}"
    parser = _Parser(stripped)
    path, position = parser.path(0)
    if position != len(stripped):
        raise parser.error(position)
    return path


def as_text(value: Any) -> str:
    """A value as it is printed: texts as they are, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def _render(parts: tuple[_Part, ...], document: Any, root: Any) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Path):
            yield " ".join(as_text(value) for value in part.find(document, root))
        else:
            for value in part.over.find(document, root):
                yield from _render(part.body, value, root)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, position: int, why: str = "") -> UsageError:
        at = self._text[position : position + 20] or "the end"
        return UsageError(
            f'cannot read the JSON path "{self._text}" at "{at}"{why and ": "}{why}',
            hint="for example {.items[*].metadata.name}",
        )

    def parts(self, *, nested: bool, position: int = 0) -> tuple[tuple[_Part, ...], int]:
        """What stands from `position` to the end of the text, or to {end} inside a range."""
        found: list[_Part] = []
        while position < len(self._text):
            brace = self._text.find("{", position)
            if brace < 0:
                found.append(self._text[position:])
                position = len(self._text)
                break
            if brace > position:
                found.append(self._text[position:brace])
            position = self._blank(brace + 1)
            if self._word(position, "end"):
                if not nested:
                    raise self.error(position, "there is no range to end")
                return tuple(found), self._close(position + 3)
            if self._word(position, "range"):
                over, position = self.path(self._blank(position + 5))
                body, position = self.parts(nested=True, position=self._close(position))
                found.append(_Range(over, body))
                continue
            position = self._expressions(position, found)
        if nested:
            raise self.error(position, "a range has no {end}")
        return tuple(found), position

    def _expressions(self, position: int, found: list[_Part]) -> int:
        """The texts and paths in one pair of braces."""
        while self._at(position) != "}":
            if self._at(position) in ("'", '"'):
                text, position = self._quoted(position)
                found.append(text)
            else:
                path, after = self.path(position)
                if after == position:
                    raise self.error(position)
                found.append(path)
                position = after
            position = self._blank(position)
        return position + 1

    def path(self, position: int) -> tuple[Path, int]:
        from_root = self._at(position) == "$"
        if self._at(position) in ("$", "@"):
            position += 1
        steps: list[Step] = []
        while True:
            if self._text.startswith("..", position):
                name, position = self._name(position + 2)
                steps.append(_anywhere(name))
            elif self._at(position) == ".":
                position = self._field(position + 1, steps)
            elif self._at(position) == "[":
                step, position = self._bracket(position + 1)
                steps.append(step)
            else:
                return Path(steps, from_root=from_root), position

    def _field(self, position: int, steps: list[Step]) -> int:
        if self._at(position) == "*":
            steps.append(_every)
            return position + 1
        if self._at(position) in ("", "}", "[", " ", ")"):
            return position  # {.} is the document itself, and .[0] its first element
        name, position = self._name(position)
        steps.append(_field(name))
        return position

    def _bracket(self, position: int) -> tuple[Step, int]:
        position = self._blank(position)
        if self._at(position) == "*":
            return _every, self._expect(position + 1, "]")
        if self._at(position) in ("'", '"'):
            name, position = self._quoted(position)
            names = [name]
            while self._at(position := self._blank(position)) == ",":
                position = self._blank(position + 1)
                if self._at(position) not in ("'", '"'):
                    raise self.error(position, "a name in quotes is missing")
                name, position = self._quoted(position)
                names.append(name)
            return _fields(names), self._expect(position, "]")
        if self._text.startswith("?(", position):
            matches, position = self._filter(position + 2)
            return _filtered(matches), self._expect(self._expect(position, ")"), "]")
        match = _SLICE.match(self._text, position)
        if match is None or (match[1] is None and match[2] is None):
            raise self.error(position)
        end = self._expect(match.end(), "]")
        if match[2] is None:
            return _element(int(match[1])), end
        first, last, every = (int(match[g]) if match[g] is not None else None for g in (1, 3, 4))
        return _slice(slice(first, last, every or None)), end

    def _filter(self, position: int) -> tuple[Callable[[Any], bool], int]:
        """@.a, or @.a == "b"; kubectl has no "and" either."""
        left, position = self._operand(self._blank(position))
        operator = _OPERATOR.match(self._text, position)
        if operator is None:
            return (lambda value: left(value) is not None), self._blank(position)
        right, position = self._operand(operator.end())
        compare = _COMPARISONS[operator[1]]
        return (lambda value: _compared(compare, left(value), right(value))), self._blank(position)

    def _operand(self, position: int) -> tuple[Callable[[Any], Any], int]:
        if self._at(position) in ("'", '"'):
            text, position = self._quoted(position)
            return (lambda _: text), position
        if self._at(position) in ("@", "$", "."):
            path, position = self.path(position)
            return (lambda value: next(iter(path.find(value)), None)), position
        if number := _NUMBER.match(self._text, position):
            constant: Any = float(number[0]) if "." in number[0] else int(number[0])
            return (lambda _: constant), number.end()
        for word, meaning in (("true", True), ("false", False)):
            if self._word(position, word):
                return (lambda _, meaning=meaning: meaning), position + len(word)
        raise self.error(position)

    def _name(self, position: int) -> tuple[str, int]:
        match = _NAME.match(self._text, position)
        if match is None:
            raise self.error(position)
        return re.sub(r"\\(.)", r"\1", match[0]), match.end()

    def _quoted(self, position: int) -> tuple[str, int]:
        quote, found = self._text[position], []
        position += 1
        while self._at(position) not in (quote, ""):
            if self._at(position) == "\\":
                position += 1
                found.append(_ESCAPES.get(self._at(position), self._at(position)))
            else:
                found.append(self._at(position))
            position += 1
        return "".join(found), self._expect(position, quote)

    def _word(self, position: int, word: str) -> bool:
        after = position + len(word)
        return self._text.startswith(word, position) and not self._text[after : after + 1].isalnum()

    def _at(self, position: int) -> str:
        return self._text[position : position + 1]

    def _blank(self, position: int) -> int:
        while self._at(position).isspace():
            position += 1
        return position

    def _close(self, position: int) -> int:
        return self._expect(position, "}")

    def _expect(self, position: int, character: str) -> int:
        position = self._blank(position) if character != '"' else position
        if self._at(position) != character:
            raise self.error(position, f"{character} is missing")
        return position + 1


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _fields(names: Sequence[str]) -> Step:
    steps = [_field(name) for name in names]
    return lambda value: (found for step in steps for found in step(value))


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _element(position: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= position < len(value):
            yield value[position]

    return step


def _slice(part: slice) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[part]

    return step


def _filtered(matches: Callable[[Any], bool]) -> Step:
    return lambda value: (element for element in _every(value) if matches(element))


def _anywhere(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for child in _every(value):
            yield from step(child)

    return step


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    try:
        return compare(left, right)
    except TypeError:
        return False
