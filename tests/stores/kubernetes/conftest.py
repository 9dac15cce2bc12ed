"""Stores on the shared API server, through kubeconfigs of a test's own, and on a server that misbehaves on demand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from aiohttp import web

from quartermaster.resources.kubernetes.core import ConfigMap, Namespace
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.kubernetes import Connection, KubernetesStore
from quartermaster.support import entropy
from quartermaster.testing.servers import KubernetesAccess, KubernetesServer

Opener = Callable[..., Awaitable[KubernetesStore]]
ServerFactory = Callable[..., Awaitable[KubernetesServer]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# They differ in how a connection ends: what runs for days has uvloop, a command of `qm` asyncio's own.
ON_BOTH_LOOPS = ("test_http1.py", "test_transport.py", "test_watch.py")


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    both = {"asyncio": asyncio.new_event_loop} if item.path.name in ON_BOTH_LOOPS else {}
    return {"uvloop": uvloop.new_event_loop, **both}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Requests go over connections of our own, or, through a proxy, over aiohttp's: both keep the same promises."""
    if "way" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_transport"):
        metafunc.parametrize("way", ["plain", "proxied"], indirect=True)


def kubeconfig_content(user: dict[str, Any], cluster: dict[str, Any], **context: str) -> bytes:
    return msgspec.json.encode(
        {
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me", **context}}],
            "current-context": "test",
        }
    )


def config_map(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


@pytest.fixture
async def opened() -> AsyncIterator[list[KubernetesStore]]:
    """Stores that are closed when the test ends."""
    stores: list[KubernetesStore] = []
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
def open_as(kubernetes_server: KubernetesAccess, tmp_path: Path, opened: list[KubernetesStore]) -> Opener:
    """`await open_as({"token": "…"}, server=…)`: the shared server through a kubeconfig with that user and cluster."""

    async def start(user: dict[str, Any], options: dict[str, Any] | None = None, **cluster: Any) -> KubernetesStore:
        merged = {"server": kubernetes_server.url, "certificate-authority": kubernetes_server.tls.authority, **cluster}
        path = tmp_path / "kubeconfig"
        path.write_bytes(kubeconfig_content(user, {name: value for name, value in merged.items() if value is not None}))
        store = await KubernetesStore.open(kubeconfig=path, **(options or {}))
        opened.append(store)
        return store

    return start


@pytest.fixture
async def store(kubernetes_server: KubernetesAccess, opened: list[KubernetesStore]) -> KubernetesStore:
    """The administrator's store on the shared server."""
    found = await KubernetesStore.open(kubeconfig=Path(kubernetes_server.kubeconfig))
    opened.append(found)
    return found


@pytest.fixture
async def namespace(store: KubernetesStore) -> str:
    made = await store.create(Namespace(metadata=ObjectMeta(generate_name="kubernetes-store-")))
    return made.metadata.name


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    found: str = getattr(request, "param", "plain")
    return found


@pytest.fixture
def connection_to(way: str) -> Callable[[str], Connection]:
    """The connection to that address; proxied, it is the address of a proxy that answers in the server's place."""

    def make(address: str) -> Connection:
        name = entropy.name_suffix()
        if way == "plain":
            return Connection(name=name, server=address)
        return Connection(name=name, server="http://api.invalid", proxy=address)

    return make


@pytest.fixture
async def misbehaving(
    opened: list[KubernetesStore], connection_to: Callable[[str], Connection]
) -> AsyncIterator[Opener]:
    """`await misbehaving(handler, patience_s=1)`: a store whose server is that function."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler, **options: Any) -> KubernetesStore:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        store = KubernetesStore(connection_to(f"http://{host}:{port}"), **options)
        opened.append(store)
        return store

    yield start
    for runner in runners:
        await runner.cleanup()
