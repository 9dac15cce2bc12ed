"""What is left to do, as sentences, and what of it waits."""

from __future__ import annotations

from quartermaster.planning.cluster import (
    ClusterKey,
    ClusterPlan,
    ClusterView,
    Desired,
    NodeView,
    Report,
    Settings,
    Verdict,
)
from quartermaster.planning.steps import digest_of, digests_in, sentences, steps_in, work_of
from quartermaster.resources import ObjectMeta, StorageNode
from quartermaster.resources.orchestration import AssignmentStatus
from quartermaster.resources.storage import StorageNodeSpec

YES = Verdict(True, "Yes", "yes")
SAME = Desired("h", "a", {"x": 1}, why="it is declared")


def view(*reports: Report, **settings: object) -> ClusterView:
    node = StorageNode(metadata=ObjectMeta(name="n"), spec=StorageNodeSpec(type="nfs"))
    known = NodeView(node=node, host="h", reports=reports)
    return ClusterView(ClusterKey("s", "nfs", "default"), Settings(**settings), (known,))  # type: ignore[arg-type]


def plan(*desired: Desired) -> ClusterPlan:
    return ClusterPlan(desired, {}, ready=YES, usable=YES, degraded=YES)


def report(config: dict[str, object] | None, *, absent: bool = False) -> Report:
    return Report("a", "", 1, config, absent, AssignmentStatus())


def whats(found: ClusterView, *desired: Desired) -> list[str]:
    return [step.what for step in work_of(found, plan(*desired)).steps]


def test_only_differences_are_steps() -> None:
    gone = Desired("h", "a", None)
    assert whats(view(), SAME) == ["set up a on host h"]
    assert whats(view(report({"x": 2})), SAME) == ["change a on host h"]
    assert whats(view(report({"x": 1})), SAME) == []
    assert whats(view(report({"x": 1})), gone) == ["take a off host h"]
    assert whats(view(report(None, absent=True)), gone) == []
    assert whats(view(), gone) == []


def test_what_destroys_waits_where_approval_is_required_until_exactly_that_is_approved() -> None:
    wiping = Desired("h", "a", {"wipe": "S1"}, destroys="what is on S1 is lost")
    free = work_of(view(), plan(wiping))
    assert (free.allowed, free.waiting) == ((wiping,), ())
    held = work_of(view(require_approval=True), plan(SAME, wiping))
    assert (held.allowed, held.waiting) == ((SAME,), (wiping,))
    text = "; ".join(sentences(held.unapproved))
    assert digests_in(text) == [digest_of(wiping)]
    approved = work_of(view(require_approval=True, approved=f"other {digest_of(wiping)}"), plan(wiping))
    assert (approved.allowed, approved.unapproved) == ((wiping,), ())
    other = Desired("h", "a", {"wipe": "S2"}, destroys="what is on S2 is lost")
    assert work_of(view(require_approval=True, approved=digest_of(wiping)), plan(other)).waiting == (other,)


def test_sentences_that_were_joined_come_apart_whole() -> None:
    destroying = [Desired(f"h{one}", "a", {"x": 1}, why="it is declared", destroys="its data are lost") for one in "12"]
    listed = sentences(work_of(view(), plan(*destroying)).steps)
    assert all("; " in one for one in listed), "a sentence may have parts itself"
    assert steps_in("; ".join(listed)) == listed
    assert steps_in("; ".join([*listed, "and 3 more"])) == [*listed, "and 3 more"]
    assert steps_in("") == []
