"""A leader's writes are sent while its term lasts and not later; and the other bounds of a call."""

import asyncio
import stat
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.stores.base import Fence
from quartermaster.stores.kubernetes import Connection, KubernetesStore
from quartermaster.stores.kubernetes.transport import Transport
from quartermaster.support.errors import FencedError, StoreError, UnavailableError, UsageError
from tests.stores.kubernetes.conftest import Opener, config_map, kubeconfig_content
from tests.stores.kubernetes.test_transport import META, STORED, answers, status
from tests.stores.kubernetes.test_watch import streams, take


class Term:
    def __init__(self) -> None:
        self.is_over = False
        self.asked = 0
        self.fence = Fence("default", "leader", "one", 7, check=self.check)

    def check(self) -> None:
        self.asked += 1
        if self.is_over:
            raise FencedError("cannot write as the leader one: its epoch 7 is over")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["create", "update", "apply", "delete"])
async def test_a_write_is_not_sent_again_when_its_term_is_over(misbehaving: Opener, call: str) -> None:
    reading = web.json_response({"metadata": META, "data": {}})
    handler, asked = answers(*([reading] if call == "delete" else []), status(429, Retry_After="1"))
    store, term = await misbehaving(handler), Term()
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    calls = {
        "create": lambda: store.create(config_map("a", "default"), fence=term.fence),
        "update": lambda: store.update(STORED, fence=term.fence),
        "apply": lambda: store.apply(document, fence=term.fence),
        "delete": lambda: store.delete(ConfigMap, "a", fence=term.fence),
    }
    waiting = asyncio.ensure_future(calls[call]())
    async with asyncio.timeout(5):
        while not term.asked or not asked:
            await asyncio.sleep(0.01)
    term.is_over = True
    with pytest.raises(FencedError):
        await waiting
    assert [method for _, method in asked if method != "GET"] == [asked[-1][1]]


async def test_who_waits_for_a_connection_past_its_term_sends_nothing(misbehaving: Opener) -> None:
    release = asyncio.Event()
    seen: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        await release.wait()
        return web.json_response({"metadata": META, "data": {}})

    store, term = await misbehaving(handle), Term()
    store.transport = Transport(store.transport.connection, connections=1)
    first = asyncio.ensure_future(store.get(ConfigMap, "a"))
    while not seen:
        await asyncio.sleep(0.01)
    second = asyncio.ensure_future(store.update(STORED, fence=term.fence))
    await asyncio.sleep(0.05)
    term.is_over = True
    release.set()
    await first
    with pytest.raises(FencedError):
        await second
    assert seen == ["GET"]
    assert (await store.get(ConfigMap, "a")).metadata.name == "a"


@pytest.mark.slow
async def test_the_time_of_a_login_is_not_taken_from_the_patience(
    misbehaving: Opener, opened: list[KubernetesStore], tmp_path: Path
) -> None:
    """A person may have to type a password; the request then has all the time that it would have had without."""
    handler, asked = answers()
    server = (await misbehaving(handler)).transport.connection.server
    issued = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\nsleep 2\necho '{msgspec.json.encode(issued).decode()}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"command": str(program), "apiVersion": issued["apiVersion"], "interactiveMode": "Never"}}
    path = tmp_path / "kubeconfig"
    path.write_bytes(kubeconfig_content(user, {"server": server}))
    store = await KubernetesStore.open(kubeconfig=path, patience_s=1.5)
    opened.append(store)
    await store.get(ConfigMap, "a")
    assert len(asked) == 1


async def test_a_server_whose_name_is_not_ascii_is_asked_for_as_resolvers_know_it(
    opened: list[KubernetesStore], tmp_path: Path
) -> None:
    store = KubernetesStore(Connection(name="m", server="http://müller.invalid:1"), patience_s=0.2)
    opened.append(store)
    with pytest.raises(UnavailableError, match=r"müller\.invalid"):
        await store.get(ConfigMap, "a")
    path = tmp_path / "kubeconfig"
    path.write_bytes(kubeconfig_content({}, {"server": "https://" + "ü" * 80 + ".example"}))
    with pytest.raises(UsageError, match="not an http or https URL"):
        await KubernetesStore.open(kubeconfig=path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ERROR", "object": {"code": [1]}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": {"annotations": 3, "resourceVersion": []}}}\n',
        b'{"type": "BOOKMARK", "object": 3}\n',
    ],
)
async def test_an_event_that_makes_no_sense_ends_a_watch_as_an_error_of_the_store(
    misbehaving: Opener, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quartermaster.stores.kubernetes.watch._NONSENSE_LIMIT", 2)
    handler, _ = streams([line], silent=False)
    with pytest.raises(StoreError, match="the server sends what is no event"):
        await take(await misbehaving(handler), 1)
