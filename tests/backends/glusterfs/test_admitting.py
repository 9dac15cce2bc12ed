"""Who may mount a volume while its bricks are replaced: gluster admits its peers then, each by names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from quartermaster.backends.glusterfs import move_agent
from quartermaster.backends.glusterfs.facts import MOVE, MOVE_PREFIX, NODE
from quartermaster.backends.glusterfs.model import VolumeInfo
from quartermaster.backends.glusterfs.move_agent import MoveConfig
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION
from quartermaster.backends.glusterfs.tool import Gluster
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, AssignmentSpec, assignment_name
from quartermaster.support.errors import CommandError
from tests.backends.conformance.bench import NAMESPACE

from .modelled import VOLUME, Cluster

OURS = "10.0.0.1,10.0.0.2"


@pytest.fixture
async def cluster(tmp_path: Path) -> Cluster:
    """h4 has room."""
    made = Cluster(tmp_path)
    await made.begin()
    made.bench.add("h4")
    await made.rounds(4)
    made.gluster.commands_run.clear()
    return made


def admitted(cluster: Cluster) -> list[str]:
    """Whom gluster was told to admit, each time."""
    words = [argv for _, argv in cluster.gluster.commands_run]
    return [argv[-1] for argv in words if argv[-4:-1] == ("set", VOLUME, "auth.allow")]


def everybody(cluster: Cluster) -> str:
    return ",".join(cluster.bench.address(host) for host in ("h1", "h2", "h3", "h4"))


async def test_who_may_mount_a_volume_is_said_again_when_a_brick_was_replaced(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each glusterd has put its own names for the peers there, and two that differ refuse each other later."""
    say, said = Gluster.set_options, list[dict[str, str]]()

    async def fails_once(gluster: Gluster, name: str, options: Mapping[str, str]) -> None:
        said.append(dict(options))
        if len(said) == 1:
            raise CommandError("cannot set the options: Another transaction is in progress")
        await say(gluster, name, options)

    monkeypatch.setattr(Gluster, "set_options", fails_once)
    cluster.lose("h3")
    await cluster.rounds()
    assert sorted(cluster.bricks()) == ["h1", "h2", "h4"]
    assert said[:2] == [{"auth.allow": everybody(cluster)}] * 2, "a run that failed there is made up for"
    assert admitted(cluster) == [everybody(cluster)]
    count = len(said)
    await cluster.rounds(2)
    assert len(said) == count


async def test_it_is_said_again_when_a_brick_that_could_not_be_replaced_stays_after_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that came back while its brick was replaced: gluster refused, and had told one of three to admit more."""

    async def refuses(gluster: Gluster, name: str, old: str, new: str) -> None:
        raise CommandError("cannot replace the brick: Pre Validation failed on 10.0.0.4. Quorum not met")

    monkeypatch.setattr(Gluster, "replace_brick", refuses)
    cluster.lose("h3")
    await cluster.rounds(4)
    tries = len(admitted(cluster))
    cluster.come_back("h3")
    await cluster.rounds()
    assert cluster.bricks() == ["h1", "h2", "h3"]
    assert admitted(cluster) == [everybody(cluster)] * (tries + 1), "the last try as well"
    await cluster.rounds(2)
    assert len(admitted(cluster)) == tries + 1


@pytest.mark.parametrize("let_go", [False, True])
async def test_a_host_that_was_let_go_meanwhile_has_nothing_to_say_any_more(
    cluster: Cluster, tmp_path: Path, let_go: bool
) -> None:
    """Its glusterd was ended, and would never answer: the end of what it was asked for waited for that."""
    asked = Assignment(
        metadata=ObjectMeta(name=assignment_name(MOVE, "h1", f"{MOVE_PREFIX}{VOLUME}"), namespace=NAMESPACE),
        spec=AssignmentSpec(host="h1", agent=MOVE, instance=f"{MOVE_PREFIX}{VOLUME}", absent=True),
    )
    note = tmp_path / "h1" / MOVE / f"{VOLUME}.allow"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(OURS)
    if let_go:
        (tmp_path / "h1" / NODE / "glusterd.json").unlink()
    await cluster.bench.run(asked)
    assert not note.exists()
    assert admitted(cluster) == ([] if let_go else [OURS])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"auth.allow": "old", "old.auth.allow": "older"}, OURS, id="ours"),
        pytest.param({ADOPTED_OPTION: "yes", "auth.allow": "10.0.0.*"}, "10.0.0.*", id="somebody-elses"),
        pytest.param(
            {ADOPTED_OPTION: "yes", "auth.allow": "10.0.0.*,gl1", "old.auth.allow": "10.0.0.*"},
            "10.0.0.*",
            id="with-the-peers-of-an-earlier-replacement",
        ),
        pytest.param(
            {ADOPTED_OPTION: "yes", "auth.allow": "10.0.7.*", "old.auth.allow": "10.0.0.*"},
            "10.0.7.*",
            id="what-he-has-set-since",
        ),
    ],
)
def test_our_volumes_admit_whom_the_leader_names_and_others_whom_their_maker_did(
    options: dict[str, str], expected: str
) -> None:
    """What gluster had there before the first replacement stays among its options for ever."""
    volume = VolumeInfo("pvc-1", "id", True, (), options=options)
    assert move_agent._allowed(MoveConfig("pvc-1", "a", "b", allow=OURS), volume) == expected
