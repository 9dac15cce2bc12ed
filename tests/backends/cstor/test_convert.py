"""The old CSPCAuto as a CStorClusterConfig."""

from typing import Any

import pytest

from quartermaster.backends.cstor.convert import convert
from quartermaster.resources.admission import admit
from quartermaster.support.errors import InvalidError


def old(*items: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    annotations = {"dao.mayadata.io/storage-class-name": "fast", "dao.mayadata.io/csi-driver-name": "csi.example"}
    return {
        "kind": "CSPCAuto",
        "metadata": {"name": "old", "annotations": annotations, **metadata},
        "spec": {"cspiList": {"poolType": "mirror", "items": list(items)}},
    }


FIRST = {"nodeLabel": "kubernetes.io/hostname=n1", "diskCount": 2, "diskCapacity": "10Gi"}
SECOND = {"nodeLabel": {"kubernetes.io/hostname": "n2"}, "diskCount": 2, "diskCapacity": "10Gi"}


@pytest.mark.slow
def test_each_pool_becomes_an_allowed_node() -> None:
    converted = convert(old(FIRST, SECOND, namespace="openebs"))
    assert converted.notes == ()
    assert admit(converted.document)["spec"] == {
        "minPoolCount": 2,
        "maxPoolCount": 2,
        "allowedNodes": {
            "nodeSelectorTerms": [
                {"matchLabels": {"kubernetes.io/hostname": "n1"}},
                {"matchLabels": {"kubernetes.io/hostname": "n2"}},
            ]
        },
        "diskConfig": {
            "minCount": 2,
            "minCapacity": "10Gi",
            "externalProvisioner": {"csiAttacherName": "csi.example", "storageClassName": "fast"},
        },
        "poolConfig": {"raidType": "mirror"},
    }


def test_what_differs_between_pools_is_the_greatest_for_all_and_is_noted() -> None:
    converted = convert(old(FIRST, {**SECOND, "diskCount": 4, "diskCapacity": "9Gi"}))
    assert converted.document["spec"]["diskConfig"]["minCount"] == 4
    assert converted.document["spec"]["diskConfig"]["minCapacity"] == "10Gi"
    assert len(converted.notes) == 2


def test_without_a_provisioner_existing_disks_are_used() -> None:
    converted = convert(old(FIRST, annotations={}))
    assert converted.document["spec"]["diskConfig"]["local"] == {}
    assert "disks that exist already are used" in converted.notes[0]


def test_what_cannot_be_read_is_told_all_at_once() -> None:
    wrong = old({"diskCount": 0, "diskCapacity": "many"}, {"nodeLabel": "node-1"})
    wrong["spec"]["cspiList"]["poolType"] = "raid5"
    with pytest.raises(InvalidError) as caught:
        convert(wrong)
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        ("spec.cspiList.poolType", "must be one of stripe, mirror, raidz, raidz2; is raid5"),
        ("spec.cspiList.items[0].nodeLabel", "is missing"),
        ("spec.cspiList.items[0].diskCount", "must be a whole number of at least 1, is 0"),
        ("spec.cspiList.items[0].diskCapacity", "must be a number with a unit, is many"),
        ("spec.cspiList.items[1].nodeLabel", "must be KEY=VALUE, is node-1"),
    ]
