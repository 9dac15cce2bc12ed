"""A second node that is declared for a host takes nothing from the one that serves there."""

from __future__ import annotations

from pathlib import Path

from quartermaster.backends.glusterfs.seeing import see
from quartermaster.planning.outcomes import FAILED, READY

from .modelled import Cluster


async def test_the_node_that_serves_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    before = await cluster.rounds(2)
    node = cluster.bench.nodes["h1"]
    cluster.bench.nodes["h1b"] = type(node)(
        metadata=type(node.metadata)(name="h1b", namespace=node.metadata.namespace), spec=node.spec
    )
    plan = await cluster.rounds(3)
    assert plan.nodes["h1b"].state == FAILED
    assert plan.nodes["h1"].state == READY
    assert plan.details["servers"] == before.details["servers"]
    assert {name: one.used for name, one in plan.nodes.items() if name != "h1b"} == {
        name: one.used for name, one in before.nodes.items()
    }
    assert plan.nodes["h1b"].used == 0
    assert see(await cluster.bench.view()).node("h1") is not None
