"""What happened while a watcher was cut off was compacted away: listing again gives the final state, deletions too."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from quartermaster.engine.cache import Cache
from quartermaster.resources import ConfigMap, Key, ObjectMeta
from quartermaster.stores import open_store
from quartermaster.stores.objects import ObjectStore
from quartermaster.testing.servers import EtcdCluster


def settings(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def authority(url: str) -> str:
    return url.removeprefix("http://")


async def test_a_cache_that_missed_a_compaction_shows_what_is_there_and_nothing_else(
    etcd_throwaway: Callable[..., Awaitable[EtcdCluster]],
) -> None:
    cluster = await etcd_throwaway(size=3)
    cut_off, *others = [authority(endpoint) for endpoint in cluster.endpoints]
    reader = await open_store(f"etcd://{cut_off}/faults")
    writer = await open_store(f"etcd://{','.join(others)}/faults")
    assert isinstance(writer, ObjectStore)
    kept, changed = await writer.create(settings("kept")), await writer.create(settings("changed", at="first"))
    await writer.create(settings("deleted"))
    again = await writer.create(settings("made-again"))
    told: list[tuple[str, str]] = []

    def tell(old: ConfigMap | None, new: ConfigMap | None) -> None:
        if old is not None and new is not None:
            told.append(("changed", new.metadata.name))
        elif new is not None:
            told.append(("added", new.metadata.name))
        elif old is not None:
            told.append(("gone", old.metadata.name))

    cache = Cache(reader, ConfigMap, "default")
    cache.subscribe(tell)
    running = asyncio.ensure_future(cache.run())
    try:
        async with asyncio.timeout(60):
            await cache.synced.wait()
            told.clear()
            await cluster.members[0].kill()
            await writer.update(replace(changed, data={"at": "last"}))
            await writer.delete(ConfigMap, "deleted")
            await writer.delete(ConfigMap, "made-again")
            await writer.create(settings("made-again"))
            await writer.create(settings("new"))
            await writer.kv.compact(await writer.kv.revision())
            await cluster.members[0].start()
            while cache.get(Key("default", "new")) is None:
                await asyncio.sleep(0.05)
        final = (await writer.list(ConfigMap, "default")).items
        assert [(o.key, o.metadata.uid, o.data) for o in cache.list("default")] == [
            (o.key, o.metadata.uid, o.data) for o in final
        ]
        assert cache.get(kept.key) is not None
        assert next(o.metadata.uid for o in final if o.key == again.key) != again.metadata.uid
        assert sorted(told) == [
            ("added", "made-again"),
            ("added", "new"),
            ("changed", "changed"),
            ("gone", "deleted"),
            ("gone", "made-again"),
        ]
    finally:
        running.cancel()
        await asyncio.wait([running])
        await reader.close()
        await writer.close()
