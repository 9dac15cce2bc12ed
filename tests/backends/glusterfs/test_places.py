"""Where a brick is that moves, whatever addresses its host has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.glusterfs.amending import place_of
from quartermaster.backends.glusterfs.facts import Moved
from quartermaster.backends.glusterfs.seeing import see
from quartermaster.resources.orchestration import Host, HostSpec

from .modelled import VOLUME, Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    await made.begin()
    return made


def renumber(cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool knows the host by the address that it had."""
    known = cluster.bench._host

    async def host(one: str) -> Host:
        found: Host = await known(one)
        return replace(found, spec=HostSpec(addresses=("192.168.0.3",))) if one == name else found

    monkeypatch.setattr(cluster.bench, "_host", host)


async def until_a_brick_is_to_move(cluster: Cluster) -> None:
    for _ in range(8):
        plan = await cluster.bench.plan()
        cluster.bench.memory = dict(plan.memory)
        for desired in plan.assignments:
            cluster.bench.ask(desired)
        if any(one.spec.agent == "glusterfs-move" for one in cluster.bench.assignments.values()):
            return
        await cluster.bench.work(again=True)
    raise AssertionError("no brick is to move")


@pytest.mark.parametrize("written", ["now", "by an earlier version", "as dead by an earlier version"])
async def test_a_brick_that_leaves_is_not_dead_although_its_host_has_another_address_by_now(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    renumber(cluster, "h3", monkeypatch)
    cluster.bench.mark("h3", deleting=True)
    await until_a_brick_is_to_move(cluster)
    if written != "now":
        moves = json.loads(cluster.bench.memory["moves"])
        assert moves[VOLUME]["open"].pop("place")["host"] == "h3"
        moves[VOLUME]["open"]["dead"] = "dead" in written
        cluster.bench.memory["moves"] = json.dumps(moves)
    volume = cluster.gluster.volume(cluster.bench.address("h1"), VOLUME)
    for at in (0, 1):
        volume.bricks[at].behind, volume.bricks[at].complete = 3, False
    for _ in range(4):
        await cluster.round(healing=False)
        moves = [one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-move"]
        assert not any((one.spec.desired or {}).get("dead") for one in moves)
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert not cluster.gluster.is_lost(VOLUME)
    await cluster.rounds(6)
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert not cluster.gluster.is_lost(VOLUME)


async def test_where_a_brick_is_says_its_peer_and_not_its_name_and_nobody_guesses(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = see(await cluster.bench.view())
    volume, known = seen.view.volumes[0], seen.fact(VOLUME)
    assert known is not None
    brick = "gl3:/srv/elsewhere/one"
    assert known.peers == ()  # their names say it
    named = replace(known, bricks=(*known.bricks[:2], brick))
    first, second, third = (cluster.gluster.uuid(cluster.bench.address(name)) for name in ("h1", "h2", "h3"))

    def host(peer: str, nodes: int = 3) -> str | None:
        view = replace(seen.view, nodes=seen.view.nodes[:nodes])
        facts = {name: facts for name, facts in seen.node_facts.items() if name in [one.host for one in view.nodes]}
        fact = replace(named, peers=(first, second, peer))
        place = place_of(replace(seen, view=view, node_facts=facts), volume, Moved(), fact, brick)
        return place.host if place is not None else None

    assert host(third) == "h3"
    assert host(third, nodes=2) == "h3"  # it was a member, and is no node any more
    assert host("of a stranger") == "gl3"
    assert host("") is None
    asked = replace(seen, node_facts={**seen.node_facts, "h2": replace(seen.node_facts["h2"], uuid="")})
    stranger = replace(named, peers=(first, second, "of a stranger"))
    assert place_of(asked, volume, Moved(), stranger, brick) is None  # it may be the one that has not told yet
    renumber(cluster, "h3", monkeypatch)
    await cluster.rounds(2)
    told = see(await cluster.bench.view()).fact(VOLUME)
    assert told is not None
    assert told.peers == (first, second, third)


async def test_a_dead_brick_of_which_nobody_knows_where_it_is_is_not_given_up(cluster: Cluster) -> None:
    cluster.bench.add("h4")
    await cluster.rounds(4)
    cluster.bench.mark("h3", deleting=True)
    await until_a_brick_is_to_move(cluster)
    moves = json.loads(cluster.bench.memory["moves"])
    moves[VOLUME]["open"] |= {"place": None, "old": "gl3:/srv/elsewhere/one", "dead": True}
    pool = next(one for one in cluster.bench.assignments.values() if one.spec.agent == "glusterfs-pool")
    told = json.loads(json.dumps(pool.status.result))
    told["volumes"][VOLUME]["bricks"][2] = "gl3:/srv/elsewhere/one"
    told["volumes"][VOLUME].pop("peers", None)
    cluster.bench.assignments[pool.metadata.name] = replace(pool, status=replace(pool.status, result=told))
    cluster.bench.memory["moves"] = json.dumps(moves)
    plan = await cluster.bench.plan()
    move = next(one for one in plan.assignments if one.agent == "glusterfs-move")
    assert move.config is not None
    assert (move.config["sources"], move.config["needed"]) == ([], 1)
    assert "on which node gl3:/srv/elsewhere/one is nobody knows" in plan.details["stuck"]
