"""What a plan would do that is not done yet, as sentences; and which of it has to wait for an approval."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from quartermaster.planning.cluster import ClusterPlan, ClusterView, Desired, Report, Step

APPROVAL_NEEDED = "ApprovalNeeded"  # the condition of a cluster in which steps wait, and the Event that tells it


class Work(msgspec.Struct, frozen=True):
    """The assignments of a plan, sorted by what may happen to them now."""

    allowed: tuple[Desired, ...]
    waiting: tuple[Desired, ...]  # for an approval
    steps: tuple[Step, ...]  # all that differs from what is there

    @property
    def unapproved(self) -> tuple[Step, ...]:
        digests = {digest_of(desired) for desired in self.waiting}
        return tuple(step for step in self.steps if step.digest in digests)


def work_of(view: ClusterView, plan: ClusterPlan) -> Work:
    """Only differences are steps. What destroys something waits if the StorageCluster says so, until it is approved."""
    reports = {
        (node.host, report.agent, report.instance): report
        for node in view.nodes
        for report in node.reports
        if node.host
    }
    allowed: list[Desired] = []
    waiting: list[Desired] = []
    steps: list[Step] = []
    for desired in plan.assignments:
        report = reports.get((desired.host, desired.agent, desired.instance))
        step = _step(desired, report)
        steps += [step] if step is not None else []
        if step is None or not _is_held(view, step):
            allowed.append(desired)
            continue
        waiting.append(desired)
        if desired.instead is not None and report is not None:
            # What was asked before may destroy more, or on worse grounds, than what waits now.
            allowed.append(desired.instead)
            other = _step(desired.instead, report)
            steps += [other] if other is not None else []
    return Work(tuple(allowed), tuple(waiting), (*steps, *plan.steps))


def _is_held(view: ClusterView, step: Step) -> bool:
    return step.destructive and view.settings.require_approval and step.digest not in view.settings.approved.split()


def _step(desired: Desired, report: Report | None) -> Step | None:
    service = f"{desired.agent} {desired.instance}".rstrip()
    if desired.config is None:
        if report is None or report.absent:
            return None
        what = f"take {service} off host {desired.host}"
    elif report is None or report.absent:
        what = f"set up {service} on host {desired.host}"
    elif report.desired != desired.config:
        what = f"change {service} on host {desired.host}"
    else:
        return None
    why = "; ".join(filter(None, (desired.why, desired.destroys)))
    return Step(what, why, destructive=bool(desired.destroys), digest=digest_of(desired))


def digest_of(desired: Desired) -> str:
    """Names one step for good: approving it approves nothing else. Where it says what is lost by it, the rest of it may
    change: it would else be another step each time that anything beside is seen.
    """
    content: list[Any] = [desired.host, desired.agent, desired.instance, desired.config]
    if desired.loses is not None:
        content = [desired.agent, desired.instance, desired.loses]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:12]


def sentences(steps: Sequence[Step]) -> list[str]:
    return [(f"{step.what} ({step.why})" if step.why else step.what) + f" [{step.digest}]" for step in steps]


def steps_in(text: str) -> list[str]:
    """The sentences of a text that joins them, each whole; what comes after the last of them is one of its own."""
    found = re.findall(r"\s*(.+?\[[0-9a-f]{12}\]|.+$)(?:;|$)", text)
    return [str(one) for one in found]


def digests_in(text: str) -> list[str]:
    """Those that `sentences` put there: whoever approves them has seen what they stand for."""
    return re.findall(r"\[([0-9a-f]{12})\]", text)
