"""Every reason that a cluster of this type gives for something that is wrong is explained in a guide."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from quartermaster.backends.glusterfs import layouts, verdicts
from quartermaster.planning import verdicts as shared

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
IN_ORDER = {"Complete", "Ready", "Usable"}
UNSEEN = {"NoSubstitute"}  # of which only the message is shown, under BricksCannotMove


def reasons_in(module: ModuleType) -> Iterator[str]:
    """What is given to a Verdict as its reason, also by way of a name."""
    tree = ast.parse(inspect.getsource(module))
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Verdict":
            reason = node.args[1]
            given = named.get(reason.id, reason) if isinstance(reason, ast.Name) else reason
            yield from (one.value for one in ast.walk(given) if isinstance(one, ast.Constant))


@pytest.mark.parametrize(
    ("module", "expected"),
    [(verdicts, "SplitBrain"), (layouts, "TooFewZones"), (shared, "NodesSilent")],
    ids=["glusterfs", "placing", "any type"],
)
def test_a_guide_explains_every_reason(module: ModuleType, expected: str) -> None:
    found = set(reasons_in(module))
    assert expected in found, "the reasons are written in another way"
    guides = "\n".join(guide.read_text() for guide in (GUIDES / "glusterfs.md", GUIDES / "volumes.md"))
    assert [reason for reason in sorted(found - IN_ORDER - UNSEEN) if reason not in guides] == []
