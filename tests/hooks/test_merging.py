"""Three-way merge: what a hook wants, what it wanted before, and what is there."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartermaster.hooks.merging import (
    OWNER_ANNOTATION,
    last_applied_annotation,
    marked,
    merged,
    wanted_document,
    without_others_finalizers,
)
from quartermaster.resources import ConfigMap, VolumeAttachment
from quartermaster.resources.openebs import CStorPoolCluster

UID = "11111111-2222-3333-4444-555555555555"
RECORD = last_applied_annotation(UID)
Document = dict[str, Any]


def config_map(data: dict[str, str], **metadata: Any) -> Document:
    """As a type writes it: what is empty is left out."""
    document: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return {**document, "data": data} if data else document


def stored(wanted: Document, **theirs: Any) -> Document:
    """What was made from a wish, with what an API server and others added."""
    made = copy.deepcopy(marked(wanted, UID, own=True))
    return {**made, "metadata": {**made["metadata"], "uid": "x", "resourceVersion": "7", **theirs}}


def test_what_is_as_wanted_is_not_changed() -> None:
    wanted = config_map({"a": "1"}, labels={"x": "y"})
    assert merged(ConfigMap, stored(wanted), wanted, UID, own=True) is None


def test_a_field_that_was_wanted_goes_and_one_of_somebody_else_stays() -> None:
    there = stored(config_map({"a": "1", "b": "2"}, labels={"x": "y"}))
    there["data"]["theirs"] = "3"
    result = merged(ConfigMap, there, config_map({"a": "1"}), UID, own=True)
    assert result is not None
    assert result["data"] == {"a": "1", "theirs": "3"}
    assert "labels" not in result["metadata"]
    assert result["metadata"]["annotations"][OWNER_ANNOTATION] == UID
    assert merged(ConfigMap, result, config_map({"a": "1"}), UID, own=True) is None


def test_a_value_that_somebody_changed_is_put_back() -> None:
    wanted = config_map({"a": "1"})
    there = stored(wanted)
    there["data"]["a"] = "changed"
    result = merged(ConfigMap, there, wanted, UID, own=True)
    assert result is not None
    assert result["data"] == {"a": "1"}


def test_a_finalizer_of_the_attacher_survives_beside_ours() -> None:
    spec = {"attacher": "csi.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    wanted = {
        **{"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "spec": spec},
        "metadata": {"name": "a", "finalizers": ["ours/x"]},
    }
    there = stored(wanted, finalizers=["external-attacher/csi", "ours/x"])
    assert merged(VolumeAttachment, there, wanted, UID, own=True) is None
    without = {**wanted, "metadata": {"name": "a"}}
    result = merged(VolumeAttachment, there, without, UID, own=True)
    assert result is not None
    assert result["metadata"]["finalizers"] == ["external-attacher/csi"]


def test_the_order_of_disks_is_the_hooks_alone() -> None:
    def cluster(*names: str) -> Document:
        disks = [{"blockDeviceName": name} for name in names]
        pools = [{"nodeSelector": {"h": "1"}, "dataRaidGroups": [{"blockDevices": disks}]}]
        return {
            **{"apiVersion": "cstor.openebs.io/v1", "kind": "CStorPoolCluster", "spec": {"pools": pools}},
            "metadata": {"name": "a"},
        }

    result = merged(CStorPoolCluster, stored(cluster("b", "a")), cluster("a", "b"), UID, own=True)
    assert result is not None
    assert result["spec"] == cluster("a", "b")["spec"]


def test_a_record_that_somebody_spoilt_takes_nothing_away() -> None:
    there = stored(config_map({"a": "1", "b": "2"}))
    there["metadata"]["annotations"][RECORD] = "{"
    result = merged(ConfigMap, there, config_map({"a": "1"}), UID, own=True)
    assert result is not None
    assert result["data"] == {"a": "1", "b": "2"}


def test_what_a_hook_cannot_decide_is_not_taken_from_it() -> None:
    shown = stored(config_map({"a": "1"}), generation=3, creationTimestamp="2020-01-01T00:00:00Z")
    assert wanted_document({**shown, "status": {"x": "y"}}, UID) == config_map(
        {"a": "1"}, annotations={OWNER_ANNOTATION: UID}
    )


def test_an_empty_object_states_nothing_and_takes_nothing_away() -> None:
    there = stored(config_map({"a": "1"}, labels={}))
    there["metadata"]["labels"] = {"theirs": "kept"}
    result = merged(ConfigMap, there, config_map({"a": "1"}, labels={"ours": "x"}), UID, own=True)
    assert result is not None
    assert result["metadata"]["labels"] == {"theirs": "kept", "ours": "x"}


def test_an_object_that_should_stay_as_it_is_is_not_written_and_nothing_of_others_becomes_ours() -> None:
    there = stored(config_map({"a": "1"}), finalizers=["theirs/x"], labels={"theirs": "kept"})
    as_it_is = wanted_document(there, UID)
    assert merged(ConfigMap, there, as_it_is, UID, own=True) is None
    assert "finalizers" not in without_others_finalizers(as_it_is, there, UID)["metadata"]


_DATA = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


@pytest.mark.slow
@given(before=_DATA, wanted=_DATA, theirs=_DATA)
def test_what_is_wanted_holds_afterwards_and_others_lose_nothing(
    before: dict[str, str], wanted: dict[str, str], theirs: dict[str, str]
) -> None:
    there = stored(config_map(before))
    there["data"] = {**theirs, **before}
    if not there["data"]:
        del there["data"]
    result = merged(ConfigMap, there, config_map(wanted), UID, own=True) or there
    kept = {name: text for name, text in theirs.items() if name not in before}
    assert result.get("data", {}) == {**kept, **wanted}
    assert merged(ConfigMap, result, config_map(wanted), UID, own=True) is None


@pytest.mark.parametrize("own", [True, False])
def test_only_what_is_own_bears_the_mark(own: bool) -> None:
    annotations = marked(config_map({}), UID, own=own)["metadata"]["annotations"]
    assert (OWNER_ANNOTATION in annotations) is own
    assert RECORD in annotations
