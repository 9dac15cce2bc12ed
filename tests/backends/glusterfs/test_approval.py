"""Bricks that are replaced only when somebody has approved it: what an approval is of, and what stands meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.planning.cluster import Step
from quartermaster.planning.steps import work_of
from quartermaster.resources.marks import ABANDON

from .modelled import VOLUME, Cluster, ask_for_its_end

MOVE = "glusterfs-move"


class Approving(Cluster):
    """Four nodes, and every step that destroys something waits for an approval."""

    approved: tuple[str, ...] = ()
    waiting: tuple[Step, ...] = ()

    async def step(self, *, agents: tuple[str, ...] = ("glusterd", "glusterfs-pool", "glusterfs-volume", MOVE)) -> None:
        """One plan, and the work of some agents: the others are cut off."""
        view = await self.bench.view()
        settings = replace(view.settings, require_approval=True, approved=" ".join(self.approved))
        view = replace(view, settings=settings)
        plan = self.bench.backend.plan(view)
        self.bench.memory = dict(plan.memory)
        work = work_of(view, plan)
        self.waiting = work.unapproved
        for desired in work.allowed:
            self.bench.ask(desired)
        for agent in agents:
            await self.bench.work(again=True, only=agent)
        self.gluster.settle(healing=False)

    def approve(self) -> None:
        self.approved += tuple(step.digest for step in self.waiting)

    def order(self) -> Mapping[str, Any] | None:
        """What the coordinator is asked to do."""
        return next((one.spec.desired for one in self.bench.assignments.values() if one.spec.agent == MOVE), None)


@pytest.fixture
async def cluster(tmp_path: Path) -> Approving:
    made = Approving(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    return made


async def lose_and_approve(cluster: Approving) -> None:
    """h3 is lost, and its brick may go to h4; nobody has done it yet."""
    cluster.lose("h3")
    for _ in range(4):
        await cluster.step()
    cluster.approve()
    await cluster.step(agents=())
    assert cluster.order() is not None
    assert cluster.waiting == ()


async def test_no_brick_is_replaced_until_somebody_approves_it(cluster: Approving) -> None:
    cluster.lose("h3")
    for _ in range(4):
        await cluster.step()
    assert cluster.order() is None
    assert cluster.bricks() == ["h1", "h2", "h3"]
    (step,) = cluster.waiting
    assert f"the copy of {VOLUME} on {cluster.bench.address('h3')}:" in step.why
    cluster.approve()
    await cluster.step()
    assert cluster.bricks() == ["h1", "h2", "h4"]


async def test_an_approval_holds_when_something_else_is_seen_before_it_is_used(cluster: Approving) -> None:
    await lose_and_approve(cluster)
    before = cluster.order()
    cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[0].starts += 1
    await cluster.step(agents=("glusterfs-pool",))
    await cluster.step(agents=("glusterfs-pool",))
    assert cluster.order() is not None
    assert cluster.order() != before, "what it is made from was looked at again"
    assert cluster.waiting == ()


async def test_a_brick_that_has_its_place_needs_no_approval_whatever_happens_then(cluster: Approving) -> None:
    await lose_and_approve(cluster)
    await cluster.step()
    assert cluster.bricks() == ["h1", "h2", "h4"]
    cluster.approved = ()
    for _ in range(3):
        cluster.gluster.volume(cluster.bench.address("h1"), VOLUME).bricks[0].starts += 1
        await cluster.step()
        assert cluster.waiting == ()


async def test_to_give_up_a_copy_that_nobody_wants_is_no_approval_to_give_up_one_that_is_wanted_again(
    cluster: Approving,
) -> None:
    await ask_for_its_end(cluster)
    cluster.lose("h3")
    await cluster.step(agents=("glusterfs-pool", "glusterfs-volume"))
    cluster.bench.mark("h3", {ABANDON: "h3"}, deleting=True)
    await cluster.step(agents=("glusterfs-pool", "glusterfs-volume"))
    assert "nothing of the volume is wanted any more" in cluster.waiting[0].why
    cluster.approve()
    await cluster.step(agents=())
    assert (cluster.order() or {})["needed"] == 0
    placed, view = cluster.bench.volumes[VOLUME], await cluster.bench.view()
    cluster.bench.volumes[VOLUME] = replace(placed, kept=True)
    volume = Volume(VOLUME, placed.size, Placement(placed.hosts, dict(placed.details)))
    cluster.bench.ask(cluster.bench.backend.volumes().desired_now(volume, view))
    await cluster.step(agents=())
    assert cluster.order() is None, "nor does the order of before stand"
    await cluster.step()
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert "nothing of the volume is wanted" not in cluster.waiting[0].why
    cluster.approve()
    await cluster.step()
    assert cluster.bricks() == ["h1", "h2", "h4"]
