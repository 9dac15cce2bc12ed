"""A real API server that is killed, frozen and made to forget, under watches and writes.

An API server that starts again knows no history: its watch cache begins at that moment, so a watcher that missed
something meanwhile is told to list again (410), as every client of Kubernetes is.
"""

import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support.errors import AlreadyExistsError, ConflictError, ExpiredError, UnavailableError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.servers import KubernetesServer
from tests.stores.kubernetes.conftest import ServerFactory, config_map

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]

OBJECTS = 8


class Follower:
    """List, watch, and list again when told to; keeps every version that it learned of, in order."""

    def __init__(self, store: KubernetesStore) -> None:
        self.store = store
        self.state: dict[str, str] = {}
        self.versions: dict[str, list[int]] = {}
        self.watched: list[int] = []  # revisions that came by watch
        self.listed: list[int] = []  # revisions of lists

    async def follow(self) -> None:
        while True:
            page = await self.store.list(ConfigMap, "default")
            self.listed.append(int(page.revision))
            self.state = {item.metadata.name: item.data["count"] for item in page.items}
            for item in page.items:
                self.learn(item.metadata.name, int(item.metadata.resource_version), again=True)
            try:
                async with aclosing(self.store.watch(ConfigMap, "default", since=page.revision)) as events:
                    async for event in events:
                        if event.object is not None:
                            self.watched.append(int(event.revision))
                            self.learn(event.object.metadata.name, int(event.revision))
                            self.state[event.object.metadata.name] = event.object.data["count"]
            except ExpiredError:
                continue

    def learn(self, name: str, version: int, *, again: bool = False) -> None:
        known = self.versions.setdefault(name, [])
        if again and known and known[-1] == version:
            return
        assert not known or known[-1] < version, f"{name} went from {known[-1]} to {version}"
        known.append(version)


class Writer:
    """Counts up in its object; afterwards `acknowledged` are the versions that the server said it wrote."""

    def __init__(self, store: KubernetesStore, name: str) -> None:
        self.store = store
        self.name = name
        self.acknowledged: list[int] = []
        self.count = 0

    async def write(self, stop: asyncio.Event) -> None:
        current = await self.create()
        while not stop.is_set():
            self.count += 1
            try:
                current = await self.store.update(replace(current, data={"count": str(self.count)}))
                self.acknowledged.append(int(current.metadata.resource_version))
            except (ConflictError, UnavailableError):  # an update may meet its own first attempt: what is there decides
                current = await self.store.get(ConfigMap, self.name, "default")
                self.count = int(current.data["count"])
            await asyncio.sleep(0.01)

    async def create(self) -> ConfigMap:
        while True:
            try:
                made = await self.store.create(config_map(self.name, "default", count="0"))
            except UnavailableError:
                continue
            except AlreadyExistsError:
                return await self.store.get(ConfigMap, self.name, "default")
            self.acknowledged.append(int(made.metadata.resource_version))
            return made


async def opened_on(server: KubernetesServer, opened: list[KubernetesStore], **options: float) -> KubernetesStore:
    store = await KubernetesStore.open(kubeconfig=server.kubeconfig, **options)  # type: ignore[arg-type]
    opened.append(store)
    return store


async def until_equal(store: KubernetesStore, followers: list[Follower]) -> None:
    async with asyncio.timeout(30):
        page = await store.list(ConfigMap, "default")
        wanted = {item.metadata.name: item.data["count"] for item in page.items}
        while any(follower.state != wanted for follower in followers):
            await asyncio.sleep(0.05)


async def test_an_api_server_killed_under_watches_loses_and_doubles_nothing(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    followers = [Follower(await opened_on(server, opened)) for _ in range(3)]
    store = await opened_on(server, opened)
    writers = [Writer(store, f"c{number}") for number in range(OBJECTS)]
    stop = asyncio.Event()
    async with TaskGroup() as following:
        for follower in followers:
            following.start(follower.follow())
        async with TaskGroup() as writing:
            for writer in writers:
                writing.start(writer.write(stop))
            for _ in range(2):
                await asyncio.sleep(1)
                await server.kill()
                await asyncio.sleep(0.5)
                await server.start()
            await asyncio.sleep(1)
            stop.set()
        await until_equal(store, followers)
        following.cancel()
    acknowledged = sorted(version for writer in writers for version in writer.acknowledged)
    assert len(acknowledged) > 100
    for follower in followers:
        assert sorted(set(follower.watched)) == follower.watched
        # Between two lists nothing is skipped: all that was acknowledged after the last one came by watch.
        since = follower.listed[-1]
        assert set(follower.watched) >= {version for version in acknowledged if version > since}
        known = {versions[-1] for versions in follower.versions.values()}
        assert known >= {max(writer.acknowledged) for writer in writers}


async def test_calls_made_while_the_api_server_is_down_are_answered_when_it_is_back(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    store = await opened_on(server, opened)
    found = await store.create(config_map("before", "default", count="0"))
    await server.kill()
    async with asyncio.timeout(60), TaskGroup() as group:
        got = group.start(store.get(ConfigMap, "before", "default"))
        listed = group.start(store.list(ConfigMap, "default"))
        updated = group.start(store.update(replace(found, data={"count": "1"})))
        created = group.start(store.create(config_map("meanwhile", "default")))
        await asyncio.sleep(0.5)
        assert not any(task.done() for task in (got, listed, updated, created))
        await server.start()
    assert got.result().metadata.uid == found.metadata.uid
    assert "before" in [item.metadata.name for item in listed.result().items]
    assert updated.result().data == {"count": "1"}
    assert created.result().metadata.name == "meanwhile"


async def test_a_frozen_api_server_is_noticed_by_its_silence(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    store = await opened_on(server, opened, silence_s=1.0)
    follower = Follower(store)
    async with asyncio.timeout(60), TaskGroup() as group:
        group.start(follower.follow())
        await store.create(config_map("a", "default", count="1"))
        await until_equal(store, [follower])
        server.pause()
        await asyncio.sleep(2.5)
        server.resume()
        found = await store.get(ConfigMap, "a", "default")
        await store.update(replace(found, data={"count": "2"}))
        await until_equal(store, [follower])
        group.cancel()
    assert len(follower.listed) == 1
    assert len(follower.versions["a"]) == 2


async def test_what_was_compacted_is_expired(
    kubernetes_throwaway: ServerFactory, opened: list[KubernetesStore]
) -> None:
    server = await kubernetes_throwaway()
    store = await opened_on(server, opened)
    for number in range(3):
        await store.create(config_map(f"c{number}", "default"))
    page = await store.list(ConfigMap, "default", limit=1)
    last = await store.create(config_map("last", "default"))
    await server.etcd.etcdctl("compact", last.metadata.resource_version)
    # The API server's cache still knows what etcd has forgotten.
    await server.kill()
    await server.start()
    with pytest.raises(ExpiredError, match="list again"):
        await store.list(ConfigMap, "default", limit=1, continues=page.continues)
    async with asyncio.timeout(10), aclosing(store.watch(ConfigMap, "default", since=page.revision)) as events:
        with pytest.raises(ExpiredError, match="list again"):
            await anext(events)
