"""What is left to do, as sentences, and what of it waits."""

from __future__ import annotations

from msgspec.structs import replace

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


def test_an_approval_is_of_what_is_lost_where_that_is_said_and_of_nothing_beside() -> None:
    moving = Desired("h", "a", {"old": 1, "from": [2]}, destroys="1 is given up", loses={"old": 1})
    required = view(require_approval=True, approved=digest_of(moving))
    beside = replace(moving, config={"old": 1, "from": [3]})
    assert work_of(required, plan(beside)).allowed == (beside,)
    assert work_of(required, plan(replace(beside, host="other"))).waiting == (), "who does it is no part of it"
    more = replace(moving, loses={"old": 2})
    assert work_of(required, plan(more)).waiting == (more,)
    assert work_of(required, plan(replace(moving, loses=None))).waiting != ()


def test_what_was_asked_before_stands_while_its_successor_waits_unless_that_says_what_is_asked_instead() -> None:
    wiping = Desired("h", "a", {"x": 2}, destroys="what is on S1 is lost")
    required = view(report({"x": 1}), require_approval=True)
    assert work_of(required, plan(wiping)).allowed == ()
    gone = Desired("h", "a", None, why="it waits")
    found = work_of(required, plan(replace(wiping, instead=gone)))
    assert found.allowed == (gone,)
    assert [step.what for step in found.unapproved] == ["change a on host h"]
    assert [step.what for step in found.steps] == ["change a on host h", "take a off host h"]


def test_nothing_is_asked_instead_of_what_is_approved_or_where_nothing_was_asked_before() -> None:
    wiping = Desired("h", "a", {"x": 2}, destroys="what is on S1 is lost", instead=Desired("h", "a", None))
    approved = view(report({"x": 1}), require_approval=True, approved=digest_of(wiping))
    assert work_of(approved, plan(wiping)).allowed == (wiping,)
    assert work_of(view(require_approval=True), plan(wiping)).allowed == ()


def test_sentences_that_were_joined_come_apart_whole() -> None:
    destroying = [Desired(f"h{one}", "a", {"x": 1}, why="it is declared", destroys="its data are lost") for one in "12"]
    listed = sentences(work_of(view(), plan(*destroying)).steps)
    assert all("; " in one for one in listed), "a sentence may have parts itself"
    assert steps_in("; ".join(listed)) == listed
    assert steps_in("; ".join([*listed, "and 3 more"])) == [*listed, "and 3 more"]
    assert steps_in("") == []
