"""The decisions about one claim, each on its own: what is to be done next follows from what is there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from quartermaster.backends.base import Placement, Volume
from quartermaster.planning.cluster import DRAIN, ClusterView
from quartermaster.provisioning.claims import (
    Act,
    Make,
    Nothing,
    Publish,
    Quiet,
    Record,
    Release,
    Settle,
    Situation,
    Undo,
    Wait,
    next_act,
)
from quartermaster.provisioning.intent import Intent, Seal, record_of
from quartermaster.provisioning.protocol import SELECTED_NODE
from quartermaster.provisioning.topology import reachable
from quartermaster.provisioning.volumes import handed_out, persistent_volume
from quartermaster.resources.kubernetes.volumes import (
    PersistentVolumeClaim,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from quartermaster.resources.marks import HOSTNAME_LABEL, INTENT
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import FAILED, SUCCEEDED, Assignment, AssignmentSpec, AssignmentStatus
from quartermaster.support.errors import TerminalError

from .world import AGENT, GIB, KEY, World, claim, storage_class

WORLD = World()
NAME = "pvc-u1"
VOLUME = Volume(NAME, GIB, Placement(("h1",), {"path": f"/volumes/{NAME}"}))
INTENDED = Intent(KEY, VOLUME, "Delete", "fast")
CONFIG = {"path": f"/volumes/{NAME}", "size": GIB}


def wanted(**spec: Any) -> PersistentVolumeClaim:
    made = claim(**spec)
    return replace(made, metadata=replace(made.metadata, uid="u1"))


def deleting(obj: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(obj, metadata=replace(obj.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


def reported(state: str = "", message: str = "", desired: dict[str, Any] | None = None) -> Assignment:
    return Assignment(
        metadata=ObjectMeta(name=f"{AGENT}-{NAME}.h1"),
        spec=AssignmentSpec(host="h1", agent=AGENT, instance=NAME, generation=1, desired=desired or CONFIG),
        status=AssignmentStatus(state=state, observed_generation=1, message=message, result={"path": "/made"}),
    )


def undoing() -> Assignment:
    """The agent is asked to take back what it could not make."""
    made = reported(SUCCEEDED)
    return replace(made, spec=replace(made.spec, desired=None, absent=True))


def leaving() -> ClusterView:
    view = WORLD.view(KEY)
    assert view is not None
    return replace(view, nodes=tuple(replace(node, leaving=DRAIN) for node in view.nodes))


def decide(**situation: Any) -> Act:
    known = {"claim": wanted(), "storage_class": storage_class(), "view": WORLD.view(KEY), **situation}
    return next_act(Situation(**known), WORLD.driver)


PUBLISHED = persistent_volume(wanted(), INTENDED, {"hostPath": {"path": "/made"}})


@pytest.mark.parametrize(
    ("situation", "act"),
    [
        ({}, Record),
        ({"claim": deleting(wanted())}, Nothing),
        ({"claim": wanted(volumeName="other")}, Nothing),
        ({"volume": PUBLISHED}, Nothing),
        ({"storage_class": storage_class(wait=True)}, Nothing),
        ({"claim": wanted(annotations={SELECTED_NODE: "h1"}), "storage_class": storage_class(wait=True)}, Record),
        ({"view": None}, Wait),
        ({"claim": wanted(selector={"matchLabels": {"a": "b"}})}, Wait),
        ({"claim": wanted(dataSource={"kind": "VolumeSnapshot", "name": "s"})}, Wait),
        ({"claim": wanted(size="11Gi")}, Wait),
        ({"intent": INTENDED}, Make),
        ({"intent": INTENDED, "assignment": reported(desired={"size": 5})}, Make),
        ({"intent": INTENDED, "assignment": reported()}, Quiet),
        ({"intent": INTENDED, "assignment": reported("running")}, Quiet),
        ({"intent": INTENDED, "assignment": reported(FAILED, "no")}, Wait),
        ({"intent": INTENDED, "assignment": reported(SUCCEEDED)}, Publish),
        ({"intent": INTENDED, "volume": PUBLISHED}, Settle),
        ({"intent": INTENDED, "volume": PUBLISHED, "claim": deleting(wanted())}, Settle),
        ({"intent": INTENDED, "claim": deleting(wanted())}, Undo),
        ({"intent": INTENDED, "assignment": reported(SUCCEEDED), "claim": deleting(wanted())}, Undo),
        ({"intent": INTENDED, "claim": wanted(volumeName="other")}, Undo),
        ({"intent": INTENDED, "assignment": reported(FAILED, "no"), "view": leaving()}, Undo),
        ({"intent": INTENDED, "assignment": undoing(), "view": leaving()}, Undo),
        ({"intent": INTENDED, "assignment": undoing()}, Make),
        ({"claim": deleting(wanted(annotations={INTENT: "not ours"}))}, Release),
    ],
)
def test_what_is_to_be_done_next(situation: dict[str, Any], act: type[Act]) -> None:
    assert isinstance(decide(**situation), act)


def test_a_volume_says_how_it_was_made_and_is_what_was_intended() -> None:
    act = decide(intent=INTENDED, assignment=reported(SUCCEEDED))
    assert isinstance(act, Publish)
    record = record_of(act.volume)
    assert record is not None
    assert (record.cluster, record.volume) == (KEY, VOLUME)
    assert act.volume.spec.host_path is not None
    assert act.volume.spec.host_path.path == "/made"


def test_a_class_may_name_where_its_volumes_are() -> None:
    racks = {"h1": {"rack": "a"}, "h2": {"rack": "b"}}
    only_a = TopologySelectorTerm(
        match_label_expressions=(TopologySelectorLabelRequirement(key="rack", values=("a",)),)
    )
    act = decide(storage_class=storage_class(allowed_topologies=(only_a,)), labels=racks)
    assert isinstance(act, Record)
    assert act.intent.volume.placement.hosts == ("h1",)
    nowhere = decide(storage_class=storage_class(allowed_topologies=(only_a,)), labels={})
    assert isinstance(nowhere, Wait)
    assert nowhere.why == "no host of stub-default is within the class's topologies: rack in (a)"


def test_a_volume_can_be_reached_from_the_hosts_of_its_affinity_only() -> None:
    act = decide(intent=INTENDED, assignment=reported(SUCCEEDED))
    assert isinstance(act, Publish)
    assert reachable(act.volume, {HOSTNAME_LABEL: "h1"})
    assert not reachable(act.volume, {HOSTNAME_LABEL: "h2"})


def test_what_is_taken_are_volumes_intents_and_what_is_being_grown_to() -> None:
    other = replace(INTENDED, volume=replace(VOLUME, name="pvc-u2", size=2 * GIB))
    growing = wanted(volumeName=NAME)
    growing = replace(growing, status=replace(growing.status, allocated_resources={"storage": "3Gi"}))
    taken = handed_out(KEY, [PUBLISHED], [INTENDED, other], [growing])
    assert [(volume.name, volume.size) for volume in taken] == [(NAME, 3 * GIB), ("pvc-u2", 2 * GIB)]


def test_an_intent_holds_for_the_claim_that_it_was_written_on_only() -> None:
    seal = Seal(b"k" * 32)
    sealed = seal.write(wanted(), INTENDED)
    assert seal.read(sealed) == INTENDED
    assert Seal(b"x" * 32).read(sealed) is None
    copied = replace(wanted(), metadata=replace(sealed.metadata, uid="u2"))
    assert seal.read(copied) is None
    digest, _, payload = sealed.metadata.annotations[INTENT].partition(" ")
    changed = {INTENT: f"{digest} {payload.replace('/volumes', '/etc')}"}
    assert seal.read(replace(sealed, metadata=replace(sealed.metadata, annotations=changed))) is None


def test_an_intent_of_ours_that_cannot_be_read_stops_everything_for_its_claim() -> None:
    seal = Seal(b"k" * 32)
    digest = seal._digest(wanted(), b'{"newer":1}')
    newer = replace(wanted(), metadata=replace(wanted().metadata, annotations={INTENT: f'{digest} {{"newer":1}}'}))
    assert seal.read(newer) is None
    with pytest.raises(TerminalError, match="another version of quartermaster wrote it"):
        seal.check(newer)
    seal.check(wanted())
    seal.check(wanted(annotations={INTENT: "forged {}"}))
