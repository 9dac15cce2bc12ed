"""`qm apply`: everything is checked first, and what happened is told truthfully."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quartermaster.cli import applying
from quartermaster.resources import StorageNode
from quartermaster.stores import open_store
from quartermaster.stores.objects import ObjectStore
from quartermaster.support.errors import StoreError, UnavailableError
from tests.cli.conftest import SEED, Cli, node

Write = Callable[[str, str], Path]


def stored(path: Path) -> list[str]:
    async def names() -> list[str]:
        store = await open_store(f"sqlite:{path}")
        try:
            return [obj.metadata.name for obj in (await store.list(StorageNode)).items]
        finally:
            await store.close()

    return asyncio.run(names())


@pytest.fixture
def embedded(home: Path) -> Path:
    return home / ".local" / "state" / "quartermaster" / "store.db"


def test_the_first_time_it_creates_the_second_time_it_changes_nothing(cli: Cli) -> None:
    assert cli("apply", "-f", SEED).out == "storagenode.coreos.com/storage-node1 created\n"
    assert cli("apply", "-f", SEED).out == "storagenode.coreos.com/storage-node1 unchanged\n"


def test_who_applies_what_is_being_deleted_is_told(cli: Cli, write: Write) -> None:
    held = write("held.yaml", node("held").replace("metadata:", "metadata:\n  finalizers: [example.org/drain]"))
    cli("apply", "-f", held)
    cli("delete", "sn", "held", "--no-wait")
    again = cli("apply", "-f", held)
    assert (again.code, again.out) == (0, "storagenode.coreos.com/held unchanged\n")
    assert "note: storagenode.coreos.com/held is being deleted; apply it again when it is gone" in again.err


def test_what_differs_is_configured(cli: Cli, write: Write) -> None:
    cli("apply", "-f", SEED)
    changed = write("changed.yaml", SEED.read_text().replace("zone: 1", "zone: 2"))
    assert cli("apply", "-f", changed).out == "storagenode.coreos.com/storage-node1 configured\n"
    assert cli("get", "sn", "storage-node1", "-o", "jsonpath={.spec.glusterfs.zone}").out == "2"


def test_a_field_that_is_left_out_is_given_up(cli: Cli, write: Write) -> None:
    cli("apply", "-f", write("a.yaml", node("a", devices="[/dev/vdb]", directories="[/srv/a]")))
    cli("apply", "-f", write("a.yaml", node("a", devices="[/dev/vdb]")))
    assert cli("get", "sn", "a", "-o", "jsonpath={.spec.directories}").out == ""


def test_the_store_that_is_written_to_is_named(cli: Cli, embedded: Path) -> None:
    assert f"store: sqlite:{embedded} (the embedded store" in cli("apply", "-f", SEED).err


def test_only_what_stands_in_the_file_becomes_ones_own(cli: Cli, write: Write) -> None:
    cli("apply", "-f", write("a.yaml", node("a", glusterfs="{cluster: one}")))
    owned = cli("get", "sn", "a", "-o", "jsonpath={.metadata.managedFields[0]}", "--show-managed-fields").out
    assert '"f:cluster":{}' in owned
    assert "f:zone" not in owned


def test_directories_streams_and_several_files_are_read(cli: Cli, write: Write, tmp_path: Path) -> None:
    write("nodes/a.yaml", node("a"))
    write("nodes/deep/b.yml", node("b") + "---\n" + node("c"))
    write("nodes/notes.txt", "not a manifest")
    single = write("d.json", '{"apiVersion": "coreos.com/v1", "kind": "StorageNode", "metadata": {"name": "d"}, '
                             '"spec": {"type": "nfs"}}')  # fmt: skip
    result = cli("apply", "-f", tmp_path / "nodes", "-f", single, "-f", "-", stdin=node("e"))
    assert result.lines == [f"storagenode.coreos.com/{name} created" for name in "abcde"]


def test_namespaces_come_first(cli: Cli, write: Write) -> None:
    both = write("both.yaml", node("a") + "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: storage\n")
    assert cli("apply", "-f", both).lines == ["namespace/storage created", "storagenode.coreos.com/a created"]


def test_the_namespace_is_the_documents_own_else_the_given_one(cli: Cli, write: Write) -> None:
    own = write("own.yaml", node("a").replace("  name: a", "  name: a\n  namespace: mine"))
    cli("apply", "-f", own)
    cli("apply", "-n", "yours", "-f", SEED)
    found = cli("get", "sn", "-A", "--no-headers").lines
    assert [line.split()[:2] for line in found] == [["mine", "a"], ["yours", "storage-node1"]]
    refused = cli("apply", "-n", "yours", "-f", own)
    assert refused.code == 1
    assert 'own.yaml:5: metadata.namespace: is "mine" and -n says "yours"' in refused.err


def test_all_mistakes_of_all_files_come_at_once_and_nothing_is_written(
    cli: Cli, write: Write, tmp_path: Path, embedded: Path
) -> None:
    write("nodes/a.yaml", node("a"))
    write("nodes/b.yaml", node("b", glusterfs="{zone: -1}", devicez="[/dev/vdb]"))
    write("nodes/c.yaml", node("c", storageNetwork="{ips: [10.0.0.300]}"))
    result = cli("apply", "-f", tmp_path / "nodes")
    assert result.code == 1
    assert result.out == ""
    assert "b.yaml:7: spec.glusterfs.zone" in result.err
    assert "b.yaml:8: spec.devicez" in result.err
    assert 'did you mean "devices"' in result.err
    assert "c.yaml:7: spec.storageNetwork.ips[0]" in result.err
    assert stored(embedded) == []


def test_the_same_name_twice_is_refused_also_when_only_one_names_its_namespace(cli: Cli, write: Write) -> None:
    other = node("a").replace("  name: a", "  name: a\n  namespace: default")
    result = cli("apply", "-f", write("twice.yaml", node("a") + "---\n" + other))
    assert result.code == 1
    assert "is declared twice" in result.err
    assert "twice.yaml:1" in result.err


def test_an_object_without_a_name_cannot_be_applied(cli: Cli, write: Write) -> None:
    result = cli("apply", "-f", write("a.yaml", node("a").replace("name: a", "generateName: a-")))
    assert result.code == 1
    assert "a.yaml:4: metadata.name: is missing" in result.err


def test_a_dry_run_says_what_would_happen_and_writes_nothing(cli: Cli, write: Write, embedded: Path) -> None:
    cli("apply", "-f", write("a.yaml", node("a")))
    cli("apply", "-f", write("b.yaml", node("b")))
    write("b.yaml", node("b", devices="[/dev/vdb]"))
    write("c.yaml", node("c"))
    result = cli("apply", "--dry-run", "-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml")
    assert result.lines == [
        "storagenode.coreos.com/a unchanged (dry run)",
        "storagenode.coreos.com/b configured (dry run)",
        "storagenode.coreos.com/c created (dry run)",
    ]
    assert stored(embedded) == ["a", "b"]


def test_a_conflict_names_fields_and_managers_and_the_way_out(cli: Cli, write: Write) -> None:
    cli("apply", "--field-manager", "operator", "-f", write("a.yaml", node("a", glusterfs="{zone: 1}")))
    write("a.yaml", node("a", glusterfs="{zone: 2}"))
    result = cli("apply", "-f", "a.yaml")
    assert result.code == 1
    assert ".spec.glusterfs.zone: owned by operator" in result.err
    assert "--force-conflicts" in result.err
    assert cli("apply", "-f", "a.yaml", "--force-conflicts").out == "storagenode.coreos.com/a configured\n"


def test_one_that_is_refused_does_not_keep_the_others_back_and_is_accounted_for(cli: Cli, write: Write) -> None:
    cli("apply", "--field-manager", "operator", "-f", write("b.yaml", node("b", glusterfs="{zone: 1}")))
    nodes = "---\n".join([node("a"), node("b", glusterfs="{zone: 2}"), node("c")])
    result = cli("apply", "-f", write("nodes.yaml", nodes))
    assert result.code == 1
    assert result.lines == ["storagenode.coreos.com/a created", "storagenode.coreos.com/c created"]
    assert "2 of 3 objects were written" in result.err
    assert "  not written: storagenode.coreos.com/b\n" in result.err


def test_what_was_written_and_could_not_be_read_back_is_not_called_unwritten(
    cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ObjectStore.apply

    async def strange(self: ObjectStore, document: dict[str, Any], **options: Any) -> object:
        made = await whole(self, document, **options)
        if document["metadata"]["name"] == "a":
            raise StoreError("cannot apply a: the answer is not an API server's; the write may have happened")
        return made

    monkeypatch.setattr(ObjectStore, "apply", strange)
    result = cli("apply", "-f", write("nodes.yaml", "---\n".join(node(name) for name in "ab")))
    assert result.code == 1
    assert "  perhaps written: storagenode.coreos.com/a\n" in result.err
    assert "not written: " not in result.err


def test_when_the_store_goes_away_it_stops_and_the_same_command_completes_it(
    cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = write("nodes.yaml", "---\n".join(node(name) for name in "abc"))
    whole = ObjectStore.apply
    calls = 0

    async def breaks(self: ObjectStore, *arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise UnavailableError("cannot apply b: the store does not answer")
        return await whole(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ObjectStore, "apply", breaks)
    result = cli("apply", "-f", nodes)
    assert result.code == 1
    assert result.lines == ["storagenode.coreos.com/a created"]
    assert result.err.splitlines()[-5:] == [
        "1 of 3 objects were written",
        "  written: storagenode.coreos.com/a",
        "  perhaps written: storagenode.coreos.com/b",
        "  not written: storagenode.coreos.com/c",
        "run the same command again to complete it",
    ]
    again = cli("apply", "-f", nodes)
    assert again.code == 0
    assert [line.split()[1] for line in again.lines] == ["unchanged", "created", "created"]


def test_a_long_list_of_names_is_shortened() -> None:
    assert applying._names([str(number) for number in range(25)]).endswith("19 and 5 more")


def test_standard_input_can_be_read_once(cli: Cli) -> None:
    result = cli("apply", "-f", "-", "-f", "-", stdin=node("a"))
    assert result.code == 2
    assert "cannot read standard input twice" in result.err


def test_an_empty_file_is_told(cli: Cli, write: Write) -> None:
    result = cli("apply", "-f", write("empty.yaml", "# nothing\n"))
    assert result.code == 2
    assert "cannot find an object" in result.err
