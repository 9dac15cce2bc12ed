"""What a user applies: admitted with its defaults, or refused with everything that is wrong with it."""

import copy
import time
from random import Random
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from quartermaster.resources import admission, all_kinds
from quartermaster.resources.admission import admit, fill_defaults, validate, validate_update
from quartermaster.resources.fastcheck import checker_of
from quartermaster.resources.model import Object
from quartermaster.resources.schema import INT_OR_STRING, OPEN, Schema, full_schema_of
from quartermaster.resources.validation import explain
from quartermaster.support.errors import InvalidError, Problem
from tests.resources.documents import SEED_STORAGE_NODE, damaged, document_of, storage_node


def problems(document: Any, **switches: bool) -> dict[str, str]:
    """Path to "message (fix)"."""
    return {p.path: f"{p.message} ({p.fix})" if p.fix else p.message for p in validate(document, **switches)}


def test_the_example_of_the_design_is_valid_as_it_stands() -> None:
    document = yaml.safe_load(SEED_STORAGE_NODE)
    assert admit(document) == document


def test_defaults_are_filled_into_sections_that_exist_only() -> None:
    assert fill_defaults(storage_node(glusterfs={}))["spec"]["glusterfs"] == {"cluster": "default", "zone": 1}
    assert "glusterfs" not in fill_defaults(storage_node())["spec"]


def test_filling_in_changes_nothing_in_place_and_returns_a_complete_document_as_it_is() -> None:
    document = storage_node(glusterfs={"cluster": "a"})
    before = copy.deepcopy(document)
    filled = fill_defaults(document)
    assert document == before
    assert fill_defaults(filled) is filled


def test_null_counts_as_not_given() -> None:
    document = storage_node(glusterfs={"zone": None}, devices=None, nodeSelector={"a": None})
    assert admit(document)["spec"] == {
        "type": "glusterfs",
        "glusterfs": {"zone": 1, "cluster": "default"},
        "nodeSelector": {},
    }


def test_null_stays_where_anything_is_allowed() -> None:
    document = {
        "apiVersion": "orchestration.coreos.com/v1alpha1",
        "kind": "Assignment",
        "metadata": {"name": "mon.h1"},
        "spec": {"host": "h1", "agent": "mon", "desired": {"a": None}},
    }
    assert admit(document)["spec"]["desired"] == {"a": None}


def test_the_text_of_a_secret_is_put_into_its_data() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "hello"}}
    assert admit(secret) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "type": "Opaque",
        "data": {"k": "aGVsbG8="},
    }


@pytest.mark.parametrize(
    ("spec", "path", "sentence"),
    [
        ({"device": []}, "spec.device", 'unknown field (did you mean "devices"?)'),
        ({"zone": 1}, "spec.zone", "unknown field (it belongs under spec.glusterfs)"),
        ({"glusterfs": {"zones": 1}}, "spec.glusterfs.zones", 'unknown field (did you mean "zone"?)'),
        ({"use_all_devices": True}, "spec.use_all_devices", 'unknown field (did you mean "useAllDevices"?)'),
        ({"devices": 5}, "spec.devices", "must be a list of text, is the number 5"),
        ({"devices": "/dev/vdb"}, "spec.devices", 'must be a list of text, is the text "/dev/vdb" (write [/dev/vdb])'),
        ({"devices": ["/dev/vdb", 5]}, "spec.devices[1]", 'must be text, is the number 5 (put it in quotes: "5")'),
        (
            {"devices": ["vdb"]},
            "spec.devices[0]",
            'must be an absolute path without "/" at its end, such as /dev/vdb; is "vdb"',
        ),
        (
            {"directories": ["/"]},
            "spec.directories[0]",
            'must be an absolute path, such as /srv/volumes, and not / itself; is "/"',
        ),
        ({"devices": ["/dev/a", "/dev/b", "/dev/a"]}, "spec.devices[2]", '"/dev/a" is listed twice'),
        ({"glusterfs": {"zone": -1}}, "spec.glusterfs.zone", "must be at least 1, is -1"),
        ({"glusterfs": {"zone": "1"}}, "spec.glusterfs.zone", "(remove the quotes: 1)"),
        ({"glusterfs": {"zone": 1.5}}, "spec.glusterfs.zone", "must be a whole number, is the number 1.5"),
        ({"glusterfs": {"zone": 2**63}}, "spec.glusterfs.zone", "must fit into 64 bits"),
        ({"glusterfs": {"cluster": "A b"}}, "spec.glusterfs.cluster", "must be lower-case letters"),
        ({"glusterfs": []}, "spec.glusterfs", "must be a map of fields, is a list"),
        ({"storageNetwork": {"ips": ["10.0.0"]}}, "spec.storageNetwork.ips[0]", "must be an IP address"),
        ({"storageNetwork": {"ips": ["fe80::1%eth0"]}}, "spec.storageNetwork.ips[0]", "must be an IP address"),
        ({"type": "glusterf"}, "spec.type", '(did you mean "glusterfs"?)'),
        ({"type": "ceph", "glusterfs": {}}, "spec.glusterfs", "is only for type glusterfs, and spec.type is ceph"),
        ({"useAllDevices": "yes"}, "spec.useAllDevices", "(write true without quotes)"),
        ({"nodeSelector": {"a": True}}, "spec.nodeSelector.a", '(put it in quotes: "true")'),
        ({"nodeSelector": "a:b"}, "spec.nodeSelector", "(put a space after the colon: a: b)"),
        ({"nodeSelector": {"a/b/c": "x"}}, 'spec.nodeSelector["a/b/c"]', "must have at most one slash"),
        ({"deviceFilter": {"minSize": "10GB"}}, "spec.deviceFilter.minSize", "(write 10Gi or 10G)"),
        ({"deviceFilter": {"minSize": 0.5}}, "spec.deviceFilter.minSize", '(put it in quotes: "0.5")'),
        ({"deviceFilter": {"minSize": "2Gi", "maxSize": "1Gi"}}, "spec.deviceFilter.minSize", "is more than maxSize"),
        ({"deviceFilter": {"name": "("}}, "spec.deviceFilter.name", "is not a regular expression"),
        ({"wipe": ["/dev/vdb"]}, "spec.wipe[0]", "must be a serial number or WWN"),
    ],
)
def test_a_mistake_in_a_storage_node_is_named_with_its_path_and_fix(
    spec: dict[str, Any], path: str, sentence: str
) -> None:
    found = problems(storage_node(**spec))
    assert list(found) == [path]
    assert sentence in found[path]


@pytest.mark.parametrize(
    ("metadata", "path", "sentence"),
    [
        ({}, "metadata.name", "is missing"),
        ({"name": "A_b"}, "metadata.name", '(for example "a-b")'),
        ({"name": "x" * 254}, "metadata.name", "at most 253 characters"),
        ({"generateName": "A-"}, "metadata.generateName", "must be lower-case"),
        ({"name": "a", "namespace": "a.b"}, "metadata.namespace", 'must be lower-case letters, digits and "-"'),
        ({"name": "a", "labels": {"a b": "x"}}, 'metadata.labels["a b"]', "the key of a label"),
        ({"name": "a", "labels": {"a": "x y"}}, "metadata.labels.a", "the value of a label"),
        ({"name": "a", "labels": {"a": 5}}, "metadata.labels.a", 'put it in quotes: "5"'),
        ({"name": "a", "annotations": {"/a": "x"}}, 'metadata.annotations["/a"]', "the key of an annotation"),
        ({"name": "a", "annotations": {"a": "x" * 300_000}}, "metadata.annotations", "at most 256 KiB"),
        ({"name": "a", "finalizers": ["a b"]}, "metadata.finalizers[0]", "must have a name of letters"),
        ({"name": "a", "finalizers": ["a.b/c", "a.b/c"]}, "metadata.finalizers[1]", "has the same value as"),
        ({"name": "a", "lables": {}}, "metadata.lables", 'did you mean "labels"?'),
    ],
)
def test_a_mistake_in_metadata_is_named(metadata: dict[str, Any], path: str, sentence: str) -> None:
    found = problems({**storage_node(), "metadata": metadata})
    assert list(found) == [path]
    assert sentence in found[path]


def test_an_object_that_is_in_no_namespace_may_not_name_one() -> None:
    document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "a", "namespace": "b"},
        "provisioner": "p",
    }
    assert problems(document) == {
        "metadata.namespace": "must not be set: storageclasses are in no namespace (remove it)"
    }


@pytest.mark.parametrize(
    ("document", "path", "sentence"),
    [
        ({"apiVersion": "coreos.com/v1"}, "kind", "is missing"),
        ({"Kind": "StorageNode", "apiVersion": "coreos.com/v1"}, "kind", 'it is spelled "Kind" here'),
        ({"kind": "StorageNod", "apiVersion": "coreos.com/v1"}, "kind", 'did you mean "StorageNode"?'),
        ({"kind": "StorageNode"}, "apiVersion", "apiVersion: coreos.com/v1"),
        ({"kind": "StorageNode", "apiVersion": "coreos.com/v2"}, "apiVersion", "apiVersion: coreos.com/v1"),
        ({"kind": ["StorageNode"], "apiVersion": "coreos.com/v1"}, "kind", "must be text, is a list"),
        ({"kind": "StorageNode", "apiVersion": 1}, "apiVersion", "must be text, is the number 1"),
    ],
)
def test_a_document_of_no_known_kind_is_refused_with_the_nearest(
    document: dict[str, Any], path: str, sentence: str
) -> None:
    ((where, what),) = problems({**document, "metadata": {"name": "a"}}).items()
    assert where == path
    assert sentence in what


def test_what_is_no_map_is_refused() -> None:
    assert "must be a map of fields" in problems("text")[""]


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({}, ["apiVersion", "kind", "metadata"]),
        ({"apiVersion": 1, "kind": ["x"], "metadata": 3, "spec": None}, ["apiVersion", "kind", "metadata", "spec"]),
        (
            {"apiVersion": "coreos.com/v1", "kind": "StorageNod", "metadata": {"name": "A", "labels": {"a b": "c"}}},
            ["kind", 'metadata.labels["a b"]', "metadata.name"],
        ),
    ],
    ids=["empty", "wrong types", "unknown kind"],
)
def test_without_a_kind_all_that_every_object_has_is_judged_at_once(document: dict[str, Any], paths: list[str]) -> None:
    assert sorted(problems(document)) == paths


def test_all_mistakes_are_listed_at_once() -> None:
    document = storage_node(
        type="glusterf", device=[], glusterfs={"zone": -1}, storageNetwork={"ips": ["x"]}, directories=["/a", "/a"]
    )
    document["metadata"] = {"name": "No"}
    with pytest.raises(InvalidError) as refused:
        admit(document)
    assert [problem.path for problem in refused.value.problems] == [
        "metadata.name",
        "spec.device",
        "spec.directories[1]",
        "spec.glusterfs.zone",
        "spec.storageNetwork.ips[0]",
        "spec.type",
    ]
    assert str(refused.value).startswith('cannot accept StorageNode "No": 6 mistakes\n')


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"minPoolCount": -1}, "spec.minPoolCount"),
        ({"minPoolCount": 3, "maxPoolCount": 2}, "spec.minPoolCount"),
        ({"diskConfig": {"externalProvisioner": {"csiAttacherName": "a"}}}, "spec.diskConfig.externalProvisioner"),
        (
            {
                "diskConfig": {
                    "externalProvisioner": {"csiAttacherName": "a", "storageClassName": "b"},
                    "local": {},
                }
            },
            "spec.diskConfig.local",
        ),
        ({"diskConfig": {"minCapacity": "0"}}, "spec.diskConfig.minCapacity"),
        ({"poolConfig": {"raidType": "raid5"}}, "spec.poolConfig.raidType"),
        (
            {"poolConfig": {"poolExpansion": {"threshold": {"used-capacity": 1.5}}}},
            "spec.poolConfig.poolExpansion.threshold.used-capacity",
        ),
    ],
)
def test_a_mistake_in_a_cstor_configuration_is_named(spec: dict[str, Any], path: str) -> None:
    document = {
        "apiVersion": "dao.mayadata.io/v1alpha1",
        "kind": "CStorClusterConfig",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    (found,) = problems(document)
    assert found.startswith(path)


@pytest.mark.slow
def test_what_kubernetes_knows_and_we_do_not_is_accepted_in_its_own_kinds() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"hostAliases": [], "containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5}}}]},
    }
    assert validate(pod) == []


def test_unknown_fields_are_fine_in_what_is_stored_already() -> None:
    document = storage_node(fieldOfTomorrow=1, glusterfs={"fieldOfTomorrow": 1, "zone": -1})
    assert list(problems(document, unknown_ok=True)) == ["spec.glusterfs.zone"]


def test_two_elements_of_a_list_with_keys_may_not_be_the_same() -> None:
    document = storage_node()
    condition = {"type": "Ready", "status": "True"}
    document["status"] = {"conditions": [condition, condition]}
    assert problems(document) == {"status.conditions[1]": "has the same type as status.conditions[0] (remove one)"}


def test_a_list_with_a_million_mistakes_is_refused_in_a_moment() -> None:
    began = time.process_time()
    found = validate(storage_node(devices=[5] * 1_000_000))
    assert 0 < len(found) <= 300
    assert time.process_time() - began < 5


def cstor(**pool: Any) -> dict[str, Any]:
    return {
        "apiVersion": "dao.mayadata.io/v1alpha1",
        "kind": "CStorClusterConfig",
        "metadata": {"name": "a"},
        "spec": {"poolConfig": pool} if pool else {},
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (storage_node(), storage_node(type="ceph"), "cannot change from glusterfs to ceph"),
        (storage_node(), storage_node(devices=["/dev/vdb"]), ""),
        (cstor(), cstor(raidType="mirror"), ""),
        (cstor(raidType="mirror"), cstor(raidType="stripe"), "cannot change from mirror to stripe"),
        (cstor(raidType="mirror"), cstor(spare=True), "cannot be removed: mirror"),
        (cstor(raidType="mirror"), cstor(), "cannot be removed: mirror"),
    ],
)
def test_what_is_declared_immutable_stays(old: dict[str, Any], new: dict[str, Any], message: str) -> None:
    assert [problem.message for problem in validate_update(old, new)] == ([message] if message else [])


def claim(size: str | float, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec},
    }


def test_a_claim_grows_and_does_not_shrink() -> None:
    assert validate_update(claim("1Gi"), claim("2Gi")) == []
    (problem,) = validate_update(claim("2Gi"), claim("1Gi"))
    assert problem.message == "cannot shrink from 2Gi to 1Gi"


@pytest.mark.parametrize(("size", "refused"), [("3Gi", False), ("2Gi", False), ("1Gi", True)])
def test_a_growth_that_has_not_happened_can_be_taken_back(size: str, refused: bool) -> None:
    waiting = {**claim("900Gi"), "status": {"capacity": {"storage": "2Gi"}}}
    messages = [problem.message for problem in validate_update(waiting, claim(size))]
    assert messages == ([f"cannot shrink from 900Gi to {size}"] if refused else [])


@pytest.mark.parametrize(("size", "same"), [(0.5, "500m"), (1.5, "1500m")])
def test_a_claim_asks_for_a_quantity_with_its_unit(size: float, same: str) -> None:
    found = problems(claim(size))
    assert found == {
        "spec.resources.requests.storage": f'must be a quantity, is {size} (write "{same}", '
        f"or with its unit, for example {size}Gi)"
    }
    assert problems(claim(float("inf"))) == {"spec.resources.requests.storage": "must be a quantity, is inf"}


def test_a_claim_names_a_volume_that_can_be() -> None:
    (problem,) = validate(claim("1Gi", volumeName="../x"))
    assert problem.path == "spec.volumeName"
    assert problem.message.startswith("is the name of no volume: must be lower-case letters")


def test_a_claim_that_was_stored_before_can_be_worked_on() -> None:
    stored = claim(0.5, volumeName="../x")
    stored["metadata"]["uid"] = "u"
    assert validate(stored) == []


def test_a_wrong_element_of_a_list_is_told_once() -> None:
    assert list(problems(claim("1Gi", accessModes=["ReadWriteSometimes"]))) == ["spec.accessModes[0]"]


def test_a_claim_is_bound_once() -> None:
    assert validate_update(claim("1Gi"), claim("1Gi", volumeName="pv1")) == []
    (problem,) = validate_update(claim("1Gi", volumeName="pv1"), claim("1Gi", volumeName="pv2"))
    assert problem.path == "spec.volumeName"


def test_the_data_of_an_immutable_config_map_stay() -> None:
    def settings_map(**rest: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, **rest}

    sealed = settings_map(data={"a": "1"}, immutable=True)
    assert validate_update(sealed, settings_map(data={"a": "1"}, immutable=True)) == []
    assert [p.path for p in validate_update(sealed, settings_map(data={"a": "2"}))] == ["data", "immutable"]


EVERY_KIND = pytest.mark.parametrize("cls", all_kinds(), ids=lambda cls: cls.__name__)
MANY = settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def as_json_schema(schema: Schema) -> Schema:
    """The same schema for an independent judge: unknown fields are to be refused where ours are."""
    if schema.get(INT_OR_STRING):
        return {"anyOf": schema["anyOf"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    plain = {k: v for k, v in schema.items() if not k.startswith("x-") and k not in ("description", "default")}
    if "properties" in schema:
        plain["properties"] = {name: as_json_schema(child) for name, child in schema["properties"].items()}
        plain["additionalProperties"] = bool(schema.get(OPEN))
    elif "additionalProperties" in schema:
        plain["additionalProperties"] = as_json_schema(schema["additionalProperties"])
    if "items" in schema:
        plain["items"] = as_json_schema(schema["items"])
    return plain


@pytest.mark.slow
@EVERY_KIND
@MANY
@given(number=st.integers(0))
def test_the_quick_check_the_explanation_and_json_schema_agree(cls: type[Object], number: int) -> None:
    random = Random(number)
    document = document_of(cls, random)
    if random.random() < 0.7:
        document = damaged(document, random)
    explained = list(explain(document, full_schema_of(cls)))
    assert checker_of(cls, False)(document) == (not explained)
    judged = jsonschema.Draft202012Validator(as_json_schema(full_schema_of(cls)))
    # JSON Schema has no word for addresses, times and equal elements.
    beyond = ("must be an IP address", "must be a time", "has the same")
    within = [problem for problem in explained if not any(text in problem.message for text in beyond)]
    assert judged.is_valid(document) == (not within)


def test_a_document_that_is_fine_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    # The explanation walks the whole schema, which takes many times as long as the check.
    explained: list[object] = []

    def noted(document: dict[str, Any], *_: Any, **__: Any) -> list[Problem]:
        explained.append(document)
        return []

    monkeypatch.setattr(admission, "explain", noted)
    document = yaml.safe_load(SEED_STORAGE_NODE)
    assert validate(fill_defaults(document)) == []
    assert not explained
    validate({**document, "spec": {}})
    assert explained
