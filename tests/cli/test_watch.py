"""`qm watch` and `qm get -w`: what is there, then each change, until somebody has seen enough."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from contextlib import aclosing

import pytest

from quartermaster.cli.finding import Query
from quartermaster.cli.watching import changes
from quartermaster.resources import ConfigMap, ObjectMeta
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from tests.cli.conftest import Cli, Program, interrupt, node

Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.slow
def test_the_state_comes_first_then_every_change(qm: Program, running: Start) -> None:
    qm("apply", "-f", "-", stdin=node("a"))
    process = running("watch", "sn")
    assert process.stdout is not None
    assert process.stdout.readline().split()[:3] == ["EVENT", "NAME", "TYPE"]
    assert process.stdout.readline().split()[:3] == ["ADDED", "a", "glusterfs"]
    qm("apply", "-f", "-", stdin=node("b"))
    qm("apply", "-f", "-", stdin=node("a", devices="[/dev/vdb]"))
    qm("delete", "sn", "b")
    seen = [process.stdout.readline().split()[:2] for _ in range(3)]
    assert seen == [["ADDED", "b"], ["MODIFIED", "a"], ["DELETED", "b"]]
    ended = interrupt(process)
    assert (ended.code, ended.err.strip()) == (130, "")


@pytest.mark.slow
def test_programs_read_one_json_document_per_line(qm: Program, running: Start) -> None:
    qm("apply", "-f", "-", stdin=node("a") + "---\n" + node("b"))
    process = running("watch", "sn", "b", "-o", "json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "b")
    qm("delete", "sn", "a", "b")
    second = json.loads(process.stdout.readline())
    assert (second["type"], second["object"]["metadata"]["name"]) == ("DELETED", "b")
    assert interrupt(process).code == 130


@pytest.mark.slow
def test_get_can_go_on_watching(qm: Program, running: Start) -> None:
    qm("apply", "-f", "-", stdin=node("a"))
    process = running("get", "sn", "-w", "--no-headers")
    assert process.stdout is not None
    assert process.stdout.readline().split()[:2] == ["a", "glusterfs"]
    qm("apply", "-f", "-", stdin=node("b", type="ceph"))
    assert process.stdout.readline().split()[:2] == ["b", "ceph"]
    assert interrupt(process).code == 130


@pytest.mark.slow
@pytest.mark.parametrize("form", ["name", "yaml"])
def test_a_reader_that_has_seen_enough_ends_it_without_another_change(qm: Program, running: Start, form: str) -> None:
    qm("apply", "-f", "-", stdin="---\n".join(node(f"n{number}") for number in range(300)))
    process = running("watch", "sn", "-o", form)
    assert process.stdout is not None
    assert process.stdout.readline() in ("ADDED storagenode.coreos.com/n0\n", "---\n")
    process.stdout.close()
    process.wait(timeout=30)
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (0, "")
    process.stdout = None


async def test_after_a_forgotten_revision_the_difference_is_told() -> None:
    kv = MemoryKeyValue()
    store = ObjectStore(kv)
    for name in "ab":
        await store.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    async with asyncio.timeout(10), aclosing(changes(store, ConfigMap, Query("default"))) as batches:
        first = await anext(batches)
        assert [(change.type, change.object.metadata.name) for change in first] == [("ADDED", "a"), ("ADDED", "b")]
        await store.delete(ConfigMap, "a", "default")
        await store.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
        await kv.compact(await kv.revision())
        found = await anext(batches)
    assert sorted((change.type, change.object.metadata.name) for change in found) == [("ADDED", "c"), ("DELETED", "a")]


@pytest.mark.parametrize("arguments", [("sn,ss",), ("sn", "a", "b"), ("all",)])
def test_one_kind_or_one_object_is_watched(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli("watch", *arguments)
    assert result.code == 2
    assert "cannot watch several" in result.err
