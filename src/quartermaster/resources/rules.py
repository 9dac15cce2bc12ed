"""Rules between fields of one document, registered next to the kind that they belong to.

A rule is a pure function from a document, whose types are right already, to the problems in it. Where the same rule
is easy to say in CEL it is declared along with it, and the API server keeps it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from quartermaster.resources.model import Object
from quartermaster.support.errors import Problem

Rule = Callable[[dict[str, Any]], Iterable[Problem]]
UpdateRule = Callable[[dict[str, Any], dict[str, Any]], Iterable[Problem]]


class Expression(msgspec.Struct, frozen=True):
    """A rule in CEL, and the sentence that the API server says when it does not hold."""

    rule: str
    message: str


Preparation = Callable[[dict[str, Any]], dict[str, Any]]

_RULES: dict[type[Object], list[Rule]] = {}
_UPDATE_RULES: dict[type[Object], list[UpdateRule]] = {}
_EXPRESSIONS: dict[type[Object], list[tuple[str, Expression]]] = {}
_PREPARATIONS: dict[type[Object], Preparation] = {}


def rule(*classes: type[Object], cel: Mapping[str, Iterable[Expression]] | None = None) -> Callable[[Rule], Rule]:
    """Register a rule; `cel` maps the path of an object in the document ("spec") to the same rule in CEL."""

    def register(function: Rule) -> Rule:
        for cls in classes:
            _RULES.setdefault(cls, []).append(function)
            for path, expressions in (cel or {}).items():
                _EXPRESSIONS.setdefault(cls, []).extend((path, expression) for expression in expressions)
        return function

    return register


def update_rule(*classes: type[Object]) -> Callable[[UpdateRule], UpdateRule]:
    """Register a rule between a document as it was and as it is to be; immutable fields need none."""

    def register(function: UpdateRule) -> UpdateRule:
        for cls in classes:
            _UPDATE_RULES.setdefault(cls, []).append(function)
        return function

    return register


def prepare(cls: type[Object]) -> Callable[[Preparation], Preparation]:
    """Register what is done to a document of the kind before defaults are filled in."""

    def register(function: Preparation) -> Preparation:
        _PREPARATIONS[cls] = function
        return function

    return register


def preparation_of(cls: type[Object]) -> Preparation | None:
    return _PREPARATIONS.get(cls)


def rules_of(cls: type[Object]) -> tuple[Rule, ...]:
    return tuple(_RULES.get(cls, ()))


def update_rules_of(cls: type[Object]) -> tuple[UpdateRule, ...]:
    return tuple(_UPDATE_RULES.get(cls, ()))


def expressions_of(cls: type[Object]) -> tuple[tuple[str, Expression], ...]:
    return tuple(_EXPRESSIONS.get(cls, ()))
