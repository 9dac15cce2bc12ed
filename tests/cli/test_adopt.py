"""`qm adopt` before anything can be adopted: it says what comes first, and writes nothing. And what it writes else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from quartermaster.backends.base import Adoption, CanAdopt
from quartermaster.backends.registry import backend_of
from quartermaster.cli.adopting import _write
from quartermaster.operators.memory import read_memory
from quartermaster.planning.cluster import ClusterKey
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, Host, HostStatus
from quartermaster.stores import open_store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from tests.cli.conftest import Cli


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> str:
    found = f"sqlite:{tmp_path}/store.db"
    monkeypatch.setenv("QM_STORE", found)
    return found


def test_without_hosts_it_says_what_comes_first(url: str, cli: Cli) -> None:
    shown = cli("adopt", "glusterfs")
    assert shown.code != 0
    assert "default has no hosts" in shown.err
    assert "qm join" in shown.err


def test_a_storage_system_that_cannot_be_adopted_is_refused_with_those_that_can(url: str, cli: Cli) -> None:
    shown = cli("adopt", "local")
    assert shown.code != 0
    assert "cannot adopt a cluster of local" in shown.err
    assert "glusterfs" in shown.err


@pytest.mark.slow
def test_a_silent_host_and_one_that_does_not_answer_are_mistakes_and_nothing_is_left_of_the_question(
    url: str, cli: Cli
) -> None:
    async def work() -> None:
        store = await open_store(url)
        for name, state in (("h1", "Ready"), ("h2", "Silent")):
            host = Host(metadata=ObjectMeta(name=name, namespace="default"))
            await store.create(host)
            found = await store.get(Host, name, "default")
            await store.update_status(Host(metadata=found.metadata, spec=found.spec, status=HostStatus(state=state)))
        await store.close()

    async def asked() -> int:
        store = await open_store(url)
        found = (await store.list(Assignment, "default")).items
        await store.close()
        return len(found)

    asyncio.run(work())
    shown = cli("adopt", "glusterfs", "--timeout", "1", "--yes")
    assert shown.code != 0
    assert "3 mistakes" in shown.err
    assert "host h2 is silent" in shown.err
    assert "host h1 has not answered within 1 s" in shown.err
    assert "nothing was written" in shown.err
    assert asyncio.run(asked()) == 0


async def test_who_is_given_up_is_remembered_with_what_was_remembered_before() -> None:
    store = ObjectStore(MemoryKeyValue())
    key = ClusterKey("default", "glusterfs", "old")
    backend = backend_of("glusterfs")
    assert isinstance(backend, CanAdopt)
    for given_up in ({}, {"uuid-2": "10.0.0.2"}, {"uuid-3": "10.0.0.3"}):
        await _write(store, Adoption(key, given_up=given_up), backend.adopter(), backend.volumes())
    memory = await read_memory(store, key)
    assert json.loads(memory["members"]) == {"uuid-2": "10.0.0.2", "uuid-3": "10.0.0.3"}
