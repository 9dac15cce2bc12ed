"""The kinds as they are declared: names, columns, descriptions, list types."""

from collections.abc import Iterator

import pytest
from msgspec import inspect

import quartermaster.resources as resources
from quartermaster.resources import all_kinds, find, find_version, kind_of
from quartermaster.resources.crd import own_kinds
from quartermaster.resources.model import Object
from quartermaster.resources.schema import LIST_KEYS, LIST_TYPE, MAP_TYPE, Schema, full_schema_of, schema_of
from quartermaster.resources.storage import StorageNode, cluster_of, zone_of
from quartermaster.support.errors import UsageError
from tests.resources.documents import storage_node


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here, child
        yield from fields(child, here)
        yield from fields(child.get("items", {}), here)


@pytest.mark.parametrize("cls", own_kinds(), ids=lambda cls: cls.__name__)
def test_every_field_of_our_own_kinds_has_a_sentence(cls: type[Object]) -> None:
    silent = [
        path for path, schema in fields(schema_of(cls)) if path != "metadata" and not schema.get("description", "")
    ]
    assert silent == []
    described = [schema["description"] for path, schema in fields(schema_of(cls)) if path != "metadata"]
    assert [text for text in described if not text.endswith(".")] == []


@pytest.mark.parametrize("cls", own_kinds(), ids=lambda cls: cls.__name__)
def test_every_list_of_our_own_kinds_says_how_it_merges(cls: type[Object]) -> None:
    undecided = [path for path, schema in fields(schema_of(cls)) if "items" in schema and LIST_TYPE not in schema]
    assert undecided == []


@pytest.mark.parametrize("cls", all_kinds(), ids=lambda cls: cls.__name__)
def test_age_is_among_the_columns_and_last_of_the_narrow_ones(cls: type[Object]) -> None:
    if cls is resources.Event or cls is resources.Node:
        return  # kubectl shows these otherwise
    narrow = [column.name for column in kind_of(cls).columns if not column.wide]
    assert narrow[-1] == "Age"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("storagenode", "StorageNode"),
        ("storagenodes", "StorageNode"),
        ("StorageNode", "StorageNode"),
        ("sn", "StorageNode"),
        ("storagenodes.coreos.com", "StorageNode"),
        ("storagestatus", "StorageStatus"),
        ("cscconfig", "CStorClusterConfig"),
        ("cscplan", "CStorClusterPlan"),
        ("cscstorageset", "CStorClusterStorageSet"),
        ("stor", "Storage"),
        ("pvc", "PersistentVolumeClaim"),
        ("pv", "PersistentVolume"),
        ("sc", "StorageClass"),
        ("cm", "ConfigMap"),
        ("ns", "Namespace"),
        ("ds", "DaemonSet"),
        ("ev", "Event"),
    ],
)
def test_a_kind_is_found_by_the_words_people_use(word: str, name: str) -> None:
    assert find(word).__name__ == name


def test_words_are_of_one_kind_only() -> None:
    words = [w for cls in all_kinds() for w in {kind_of(cls).plural, kind_of(cls).singular, *kind_of(cls).short_names}]
    assert len(words) == len(set(words))


def test_a_kind_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match='did you mean "storagenode'):
        find("storagenod")


@pytest.mark.slow
@pytest.mark.parametrize("cls", all_kinds(), ids=lambda cls: cls.__name__)
def test_a_default_of_the_api_is_no_default_of_the_struct(cls: type[Object]) -> None:
    # A value that equals the struct's default is not written: what a user stated would be lost.
    def both(info: inspect.Type) -> Iterator[str]:
        extra: dict[str, object] = {}
        while isinstance(info, inspect.Metadata):
            extra, info = {**(info.extra or {}), **extra}, info.type
        if isinstance(info, inspect.StructType):
            for field in info.fields:
                declared = getattr(field.type, "extra", None) or {}
                if "default" in declared and field.default not in (None, "", ()):
                    yield f"{info.cls.__name__}.{field.name}"
                yield from both(field.type)
        for child in getattr(info, "types", ()):
            yield from both(child)
        for inner in ("item_type", "value_type"):
            if hasattr(info, inner):
                yield from both(getattr(info, inner))

    assert list(both(inspect.type_info(cls))) == []


def test_the_columns_of_storage_status_are_those_of_the_design() -> None:
    names = [column.name.upper() for column in kind_of(resources.StorageStatus).columns]
    assert names == ["TYPE", "STATUS", "NODES", "READY", "USED", "CAPACITY", "MESSAGE", "AGE"]


@pytest.mark.parametrize(
    ("api_version", "kind", "path", "expected"),
    [
        ("v1", "Pod", "spec.containers", {LIST_TYPE: "map", LIST_KEYS: ["name"]}),
        ("v1", "Pod", "spec.containers.env", {LIST_TYPE: "map", LIST_KEYS: ["name"]}),
        ("v1", "Pod", "spec.containers.ports", {LIST_TYPE: "map", LIST_KEYS: ["containerPort", "protocol"]}),
        ("v1", "Pod", "spec.containers.volumeMounts", {LIST_TYPE: "map", LIST_KEYS: ["mountPath"]}),
        ("v1", "Pod", "spec.volumes", {LIST_TYPE: "map", LIST_KEYS: ["name"]}),
        ("v1", "Pod", "spec.tolerations", {LIST_TYPE: "atomic"}),
        ("v1", "Pod", "spec.nodeSelector", {MAP_TYPE: "atomic"}),
        ("v1", "Pod", "metadata.ownerReferences", {LIST_TYPE: "map", LIST_KEYS: ["uid"]}),
        ("v1", "Pod", "metadata.finalizers", {LIST_TYPE: "set"}),
        ("v1", "PersistentVolumeClaim", "spec.accessModes", {LIST_TYPE: "atomic"}),
        ("v1", "PersistentVolumeClaim", "spec.selector", {MAP_TYPE: "atomic"}),
        ("v1", "PersistentVolumeClaim", "status.conditions", {LIST_TYPE: "map", LIST_KEYS: ["type"]}),
        ("v1", "PersistentVolume", "spec.claimRef", {MAP_TYPE: "granular"}),
        ("v1", "Event", "involvedObject", {MAP_TYPE: "atomic"}),
        ("coreos.com/v1", "StorageNode", "spec.devices", {LIST_TYPE: "atomic"}),
        ("coreos.com/v1", "StorageNode", "status.conditions", {LIST_TYPE: "map", LIST_KEYS: ["type"]}),
    ],
)
def test_lists_and_maps_merge_as_upstream_declares(
    api_version: str, kind: str, path: str, expected: dict[str, object]
) -> None:
    cls = find_version(api_version, kind)
    assert cls is not None
    schema = dict(fields(full_schema_of(cls)))[path]
    assert {name: schema.get(name) for name in (LIST_TYPE, LIST_KEYS, MAP_TYPE) if name in schema} == expected


def test_a_node_without_a_section_is_of_the_default_cluster_and_zone() -> None:
    bare = resources.from_document(StorageNode, storage_node())
    placed = resources.from_document(StorageNode, storage_node(glusterfs={"cluster": "c1", "zone": 3}))
    assert (cluster_of(bare), zone_of(bare)) == ("default", 1)
    assert (cluster_of(placed), zone_of(placed)) == ("c1", 3)
