"""`qm adopt` before anything can be adopted: it says what comes first, and writes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Assignment, Host, HostStatus
from quartermaster.stores import open_store
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
