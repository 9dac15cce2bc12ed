"""Choosing objects by label and by field, in the words that kubectl takes.

A `LabelSelector` is also part of objects (`spec.selector` of a Deployment); `parse` makes the same struct from text.
An empty selector matches everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import field

from quartermaster.resources.declare import declare
from quartermaster.resources.kind import Kind, kind_of
from quartermaster.resources.model import Object, Struct
from quartermaster.resources.names import check_label_value, check_qualified_name
from quartermaster.support.errors import UsageError

_FORMS = 'write for example "app=web,tier in (a,b),!old"'
_METADATA_FIELDS = ("metadata.name", "metadata.namespace")

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<missing>[^\s,=!()<>]+)
      | (?P<key>[^\s,=!()<>]+)\s*(?:
            (?P<operator>==|=|!=|<|>)\s*(?P<value>[^\s,=!()<>]*)
          | (?P<set>\bin|\bnotin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"((?:[^\\,=!]|\\.)+?)(==|=|!=)((?:[^\\,=]|\\.)*)(?:,|$)")


class LabelSelectorRequirement(Struct):
    key: Annotated[str, declare("The label to look at.")]
    operator: Annotated[str, declare("How to compare it.", enum=("In", "NotIn", "Exists", "DoesNotExist"))]
    values: Annotated[tuple[str, ...], declare("What to compare it with.", list_type="atomic")] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            left, right = int(value or ""), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(Struct):
    """All of it must hold."""

    atomic: ClassVar[bool] = True

    match_labels: Annotated[dict[str, str], declare("Labels that must have exactly these values.")] = field(
        default_factory=dict
    )
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...],
        declare("Comparisons that must all hold.", list_type="atomic"),
    ] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "a=b,c!=d,e in (f,g),h notin (i),j,!k"."""
        return cls(match_expressions=_parse_labels(text))

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self.match_expressions)

    def __bool__(self) -> bool:
        return bool(self.match_labels or self.match_expressions)


class FieldRequirement(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, document: Mapping[str, Any]) -> bool:
        return (_text_at(document, self.path) == self.value) is self.equal


class FieldSelector(msgspec.Struct, frozen=True):
    """All of it must hold. A field that is not there has the value ""."""

    requirements: tuple[FieldRequirement, ...] = ()

    @classmethod
    def parse(cls, text: str, kind: Kind | type[Object]) -> Self:
        """From "spec.type=glusterfs,metadata.name!=a"; only fields that the kind declares as selectable."""
        return cls(_parse_fields(text, kind if isinstance(kind, Kind) else kind_of(kind)))

    def matches(self, document: Mapping[str, Any]) -> bool:
        return all(requirement.matches(document) for requirement in self.requirements)

    def required(self, path: str) -> str | None:
        """The value that the field must have, where the selector asks for one: a store may then look at less."""
        wanted = tuple(path.split("."))
        return next((r.value for r in self.requirements if r.equal and r.path == wanted), None)

    def __bool__(self) -> bool:
        return bool(self.requirements)


@lru_cache(maxsize=256)
def _parse_labels(text: str) -> tuple[LabelSelectorRequirement, ...]:
    found = []
    position = 0
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise UsageError(f'cannot read the label selector "{text}" at "{text[position:].strip()}"', hint=_FORMS)
        found.append(_requirement(match, text))
        position = match.end()
    if text.rstrip().endswith(","):
        raise UsageError(f'cannot read the label selector "{text}": it ends with a comma', hint=_FORMS)
    return tuple(found)


def _requirement(match: re.Match[str], text: str) -> LabelSelectorRequirement:
    key = match["missing"] or match["key"]
    values: tuple[str, ...] = ()
    if wrong := check_qualified_name(key):
        raise UsageError(f'cannot read the label selector "{text}": the key "{key}" {wrong}', hint=_FORMS)
    if match["absent"]:
        operator = "DoesNotExist"
    elif match["set"]:
        operator = "In" if match["set"] == "in" else "NotIn"
        values = tuple(value.strip() for value in match["values"].split(","))
        if values == ("",):
            raise UsageError(f'cannot read the label selector "{text}": nothing in the parentheses', hint=_FORMS)
    elif match["operator"]:
        operator = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[match["operator"]]
        values = (match["value"],)
    else:
        operator = "Exists"
    for value in values:
        wrong = check_label_value(value)
        if not wrong and operator in ("Gt", "Lt") and not re.fullmatch(r"-?\d+", value):
            wrong = "must be a whole number"
        if wrong:
            raise UsageError(f'cannot read the label selector "{text}": the value "{value}" {wrong}', hint=_FORMS)
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


@lru_cache(maxsize=256)
def _field_terms(text: str) -> tuple[tuple[str, str, str], ...]:
    terms = []
    position = 0
    while position < len(text):
        match = _FIELD_TERM.match(text, position)
        if match is None:
            raise UsageError(
                f'cannot read the field selector "{text}" at "{text[position:]}"',
                hint='write for example "spec.type=glusterfs,metadata.name!=a"',
            )
        path, operator, value = match.groups()
        terms.append((path.strip(), operator, re.sub(r"\\(.)", r"\1", value)))
        position = match.end()
    return tuple(terms)


def _parse_fields(text: str, kind: Kind) -> tuple[FieldRequirement, ...]:
    allowed = (*_METADATA_FIELDS, *kind.selectable_fields)
    found = []
    for path, operator, value in _field_terms(text):
        if path not in allowed:
            raise UsageError(
                f'cannot select {kind.plural} by the field "{path}"', hint=f"selectable are {', '.join(allowed)}"
            )
        found.append(FieldRequirement(tuple(path.split(".")), value, operator != "!="))
    return tuple(found)


def _text_at(document: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value: Any = document
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return ""
        value = value[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
