"""The four homes of objects, for one suite that runs unchanged on all of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from quartermaster.resources import Namespace, ObjectMeta
from quartermaster.stores import Store, open_store
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy

HOMES = ("memory", "sqlite", "etcd", "kubernetes")


class Home(msgspec.Struct, frozen=True):
    """Opens further stores on the same data, and makes old revisions unreadable."""

    name: str
    open: Callable[[str], Awaitable[Store]]
    forget: Callable[[Store], Awaitable[None]]


@pytest.fixture
def home_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "home_name" in metafunc.fixturenames:
        marks = {"etcd": [pytest.mark.etcd], "kubernetes": [pytest.mark.kubernetes]}
        parameters = [pytest.param(name, marks=marks.get(name, []), id=name) for name in HOMES]
        metafunc.parametrize("home_name", parameters, indirect=True)


@pytest.fixture
async def home(home_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Home]:
    opened: list[Store] = []
    api_server = (
        "kubernetes_collecting_server" if request.node.get_closest_marker("collecting") else "kubernetes_server"
    )
    shared = MemoryKeyValue()
    prefix = entropy.name_suffix(12)

    async def open_one(manager: str = "quartermaster") -> Store:
        if home_name == "memory":
            store: Store = ObjectStore(shared, manager=manager)
        elif home_name == "sqlite":
            store = await open_store(f"sqlite:{tmp_path}/store.db", manager=manager)
        elif home_name == "etcd":
            access = request.getfixturevalue("etcd_servers")
            endpoints = ",".join(e.removeprefix("http://") for e in access.endpoints)
            store = await open_store(f"etcd://{endpoints}/{prefix}", manager=manager)
        else:
            from quartermaster.stores.kubernetes import KubernetesStore

            access = request.getfixturevalue(api_server)
            store = await KubernetesStore.open(kubeconfig=Path(access.kubeconfig), manager=manager)
        opened.append(store)
        return store

    async def forget(store: Store) -> None:
        # The API server's watch cache begins at its start: there the first revision is always too old.
        if isinstance(store, ObjectStore):
            await store.kv.compact(await store.kv.revision())

    yield Home(home_name, open_one, forget)
    for store in opened:
        await store.close()


@pytest.fixture
async def store(home: Home) -> Store:
    return await home.open("quartermaster")


@pytest.fixture
async def namespace(home: Home, store: Store) -> AsyncIterator[str]:
    """One of its own for each test; an API server wants it to exist."""
    name = f"t-{entropy.name_suffix(8)}"
    if home.name == "kubernetes":
        await store.create(Namespace(metadata=ObjectMeta(name=name)))
    yield name
    if home.name == "kubernetes":
        await store.delete(Namespace, name)
