"""`qm get`: what is there, in the form that is asked for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from quartermaster.cli import finding
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import ExpiredError
from tests.cli.conftest import SEED, Cli, node, table

Write = Callable[[str, str], Path]


@pytest.fixture
def nodes(cli: Cli, write: Write) -> Cli:
    labelled = node("b", type="ceph").replace("  name: b", "  name: b\n  labels: {rack: one}")
    cli("apply", "-f", write("nodes.yaml", node("a", glusterfs="{zone: 2}") + "---\n" + labelled))
    cli("apply", "-n", "other", "-f", write("c.yaml", node("c")))
    return cli


def test_a_table_has_the_columns_of_the_kind(nodes: Cli) -> None:
    rows = table(nodes("get", "storagenodes").out)
    assert rows[0] == ["NAME", "TYPE", "CLUSTER", "HOST", "STATE", "AGE"]
    assert [row[:2] for row in rows[1:]] == [["a", "glusterfs"], ["b", "ceph"]]


def test_wide_shows_more_columns(nodes: Cli) -> None:
    assert "CAPACITY" in nodes("get", "sn", "-o", "wide").lines[0]


def test_all_namespaces_add_a_column(nodes: Cli) -> None:
    rows = table(nodes("get", "sn", "-A").out)
    assert rows[0][:2] == ["NAMESPACE", "NAME"]
    assert [row[:2] for row in rows[1:]] == [["default", "a"], ["default", "b"], ["other", "c"]]


def test_the_namespace_may_stand_before_or_after_the_command(nodes: Cli) -> None:
    assert nodes("-n", "other", "get", "sn", "-o", "name").out == nodes("get", "-n", "other", "sn", "-o", "name").out


def test_several_names_and_several_kinds(nodes: Cli) -> None:
    assert nodes("get", "sn", "b", "a", "-o", "name").lines == ["storagenode.coreos.com/b", "storagenode.coreos.com/a"]
    rows = table(nodes("get", "storagenodes,configmaps").out)
    assert rows[1][0] == "storagenode.coreos.com/a"


@pytest.mark.parametrize(
    ("option", "found"),
    [
        (("-l", "rack=one"), ["b"]),
        (("-l", "rack in (one,two)"), ["b"]),
        (("-l", "!rack"), ["a"]),
        (("--field-selector", "spec.type=glusterfs"), ["a"]),
        (("--field-selector", "metadata.name!=a"), ["b"]),
    ],
)
def test_selectors_choose(nodes: Cli, option: tuple[str, str], found: list[str]) -> None:
    names = nodes("get", "sn", *option, "-o", "name").lines
    assert names == [f"storagenode.coreos.com/{name}" for name in found]


def test_one_object_as_yaml_is_what_can_be_applied_again(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    document = yaml.safe_load(cli("get", "sn", "storage-node1", "-o", "yaml").out)
    assert document["spec"] == yaml.safe_load(SEED.read_text())["spec"]
    assert "managedFields" not in document["metadata"]


def test_managed_fields_are_shown_on_request(nodes: Cli) -> None:
    document = json.loads(nodes("get", "sn", "a", "-o", "json", "--show-managed-fields").out)
    assert document["metadata"]["managedFields"][0]["manager"] == "qm"


def test_several_objects_are_a_list(nodes: Cli) -> None:
    document = json.loads(nodes("get", "sn", "-o", "json").out)
    assert document["kind"] == "List"
    assert [item["metadata"]["name"] for item in document["items"]] == ["a", "b"]


def test_texts_of_several_lines_are_blocks_in_yaml(cli: Cli, write: Write) -> None:
    settings = write(
        "cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    one\n    two\n"
    )
    cli("apply", "-f", settings)
    assert "  x: |\n    one\n    two\n" in cli("get", "cm", "a", "-o", "yaml").out


def test_a_json_path_picks_values(nodes: Cli) -> None:
    template = 'jsonpath={range .items[*]}{.metadata.name}={.spec.type}{"\\n"}{end}'
    assert nodes("get", "sn", "-o", template).lines == ["a=glusterfs", "b=ceph"]


def test_sorting_goes_by_a_value(nodes: Cli) -> None:
    assert nodes("get", "sn", "--sort-by", ".spec.type", "-o", "name").lines == [
        "storagenode.coreos.com/b",
        "storagenode.coreos.com/a",
    ]


def test_labels_and_headers_are_a_choice(nodes: Cli) -> None:
    rows = table(nodes("get", "sn", "--show-labels", "--no-headers").out)
    assert [row[-1] for row in rows] == ["<none>", "rack=one"]


def test_nothing_found_is_said_on_standard_error(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    cli("delete", "-f", SEED)
    result = cli("get", "sn")
    assert (result.code, result.out) == (0, "")
    assert result.err == "No resources found in default namespace.\n"
    assert cli("get", "sn", "-A").err == "No resources found\n"
    assert cli("get", "all").err == "No resources found in default namespace.\n"


def test_a_name_that_is_not_there_is_an_error_and_the_others_are_shown(nodes: Cli) -> None:
    result = nodes("get", "sn", "a", "nothing", "-o", "name")
    assert result.code == 1
    assert result.out == "storagenode.coreos.com/a\n"
    assert result.err == 'error: cannot find storagenode "default/nothing"\n'
    assert nodes("get", "sn", "nothing", "--ignore-not-found").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("sn", "-o", "xml"), 'cannot print as "xml"; -o takes wide, yaml'),
        (("sn", "-o", "jsonpath"), "it is missing"),
        (("sn", "-o", "jsonpath={.a"), "cannot read the JSON path"),
        (("sn", "a", "-l", "x=y"), "cannot use names and a selector together"),
        (("sn", "a", "-A"), "cannot look for a name in all namespaces"),
        (("sn", "-l", "x=y,"), "cannot read the label selector"),
        (("sn", "--field-selector", "spec.nodes=3"), "cannot select storagenodes by the field"),
        (("storagenod",), 'did you mean "storagenode"?'),
        (("sn,ss", "-w"), "cannot watch several kinds"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(nodes: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    result = nodes("get", *arguments)
    assert result.code == 2
    assert sentence in result.err


@pytest.mark.slow
def test_more_objects_than_one_page_are_all_shown(cli: Cli, write: Write) -> None:
    count = 501
    many = "---\n".join(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{n:04}}}\n" for n in range(count))
    assert cli("apply", "-f", write("many.yaml", many)).code == 0
    assert len(cli("get", "cm", "-o", "name").lines) == count


LEASES = "---\n".join(
    f"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {name}}}\n" for name in ("b.a", "a.z", "c.b")
)


def test_a_list_in_parts_is_in_the_order_of_names(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of these are in the order of their hosts."""
    monkeypatch.setattr(finding, "PAGE", 1)
    cli("apply", "-f", "-", stdin=LEASES)
    assert cli("get", "leases", "-o", "jsonpath={.items[*].metadata.name}").out == "a.z b.a c.b"


def test_a_moment_that_is_forgotten_between_two_parts_is_made_up_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    list_part = ObjectStore.list

    async def forget(store: ObjectStore, *arguments: Any, continues: str = "", **options: Any) -> Any:
        if continues:
            raise ExpiredError("cannot list leases: the revision was compacted")
        return await list_part(store, *arguments, **options)

    monkeypatch.setattr(finding, "PAGE", 1)
    monkeypatch.setattr(ObjectStore, "list", forget)
    cli("apply", "-f", "-", stdin=LEASES)
    assert len(cli("get", "leases", "-o", "name").lines) == 3


def test_access_modes_are_words_and_no_list_of_a_program(cli: Cli, write: Write) -> None:
    volume = """apiVersion: v1
kind: PersistentVolume
metadata: {name: one}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  hostPath: {path: /srv/one}
"""
    assert cli("apply", "-f", write("volume.yaml", volume)).code == 0
    assert "ReadWriteOnce ReadOnlyMany" in cli("get", "pv").out
