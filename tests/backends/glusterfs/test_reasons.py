"""Every reason that a cluster of this type gives for something that is wrong is explained in a guide."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from quartermaster.backends.glusterfs import layouts, verdicts, volumes
from quartermaster.planning import verdicts as shared
from quartermaster.provisioning import claims

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
IN_ORDER = {"Complete", "Ready", "Usable"}
UNSEEN = {"NoSubstitute"}  # of which only the message is shown, under BricksCannotMove
PLACES = {"Verdict": 1, "Refusal": 0}  # of the reason among what they are made of

Function = ast.FunctionDef | ast.AsyncFunctionDef


def reasons_in(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """What is given to a Verdict or a Refusal as its reason, also by way of a name of the function or of the module."""
    for function in [one for one in ast.walk(ast.parse(source)) if isinstance(one, Function)]:
        for call in [one for one in ast.walk(function) if isinstance(one, ast.Call)]:
            if isinstance(call.func, ast.Name) and call.func.id in PLACES:
                yield from texts_of(call.args[PLACES[call.func.id]], function, known)


def texts_of(given: ast.expr, function: Function, known: Mapping[str, object]) -> Iterator[str]:
    if isinstance(given, ast.Constant):
        yield str(given.value)
    elif isinstance(given, ast.IfExp):
        yield from texts_of(given.body, function, known)
        yield from texts_of(given.orelse, function, known)
    elif isinstance(given, ast.Name):
        values = list(assigned(given.id, function))
        for value in values:
            yield from texts_of(value, function, known)
        if not values:
            yield str(known[given.id])
    else:
        passed_on = isinstance(given, ast.Attribute) and given.attr == "reason"
        assert passed_on, f"a reason is written in a way that this test does not read: {ast.unparse(given)}"


def assigned(name: str, function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
            yield node.value


def explained() -> set[str]:
    """What stands in the first column of a table."""
    lines = [line for name in ("glusterfs.md", "volumes.md") for line in (GUIDES / name).read_text().splitlines()]
    return {word for line in lines if line.startswith("|") for word in re.findall(r"\w+", line.split("|")[1])}


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (verdicts, "SplitBrain"),
        (layouts, "TooFewZones"),
        (shared, "NodesSilent"),
        (volumes, "NodeNotReady"),
        (claims, "Paused"),
    ],
    ids=["glusterfs", "placing", "any type", "volumes", "claims"],
)
def test_a_guide_explains_every_reason(module: ModuleType, expected: str) -> None:
    found = set(reasons_in(inspect.getsource(module), vars(module)))
    assert expected in found, "the reasons are written in another way"
    assert found - IN_ORDER - UNSEEN - explained() == set()


def test_a_reason_that_is_named_alike_in_two_functions_is_read_in_both() -> None:
    source = """
def first(short):
    reason = "One" if short else "Two"
    return Verdict(True, reason, "")

def second():
    reason = "Three"
    return Refusal(reason, KNOWN)

def third():
    return Refusal(KNOWN, "")
"""
    assert sorted(reasons_in(source, {"KNOWN": "Four"})) == ["Four", "One", "Three", "Two"]


def test_a_reason_that_is_only_spoken_of_is_not_explained() -> None:
    assert "Rejected" in (GUIDES / "glusterfs.md").read_text()
    assert "Rejected" not in explained()
