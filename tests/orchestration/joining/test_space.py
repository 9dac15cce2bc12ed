"""A full database takes no writes, so nobody leads: it is cured all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from quartermaster.engine.election import LEADER_LEASE
from quartermaster.resources import ConfigMap, ObjectMeta
from quartermaster.stores import open_store
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import QuartermasterError, RefusedError

from .hosts import Cluster

QUOTA = 20 << 20


async def fill(store: Store) -> None:
    """One object, written again and again: what it was before takes the space."""
    meta = ObjectMeta(name="large", namespace="default")
    await store.create(ConfigMap(metadata=meta))
    for number in range(200):
        text = f"{number:08}" * 50_000
        await modify(store, ConfigMap, "large", "default", lambda found, text=text: replace(found, data={"t": text}))


@pytest.mark.slow
async def test_an_etcd_without_space_is_compacted_defragmented_and_written_again(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1", flags=[f"--quota-backend-bytes={QUOTA}"])
    store = await open_store(first.access.leader_url)
    async with asyncio.timeout(30):
        while not await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.1)
    with pytest.raises(RefusedError, match="database space exceeded"):
        await fill(store)

    async with asyncio.timeout(60):
        while True:
            with suppress(QuartermasterError):
                await store.create(ConfigMap(metadata=ObjectMeta(name="after", namespace="default")))
                break
            await asyncio.sleep(0.2)
        while not await store.lease_held("default", LEADER_LEASE):
            await asyncio.sleep(0.1)
    await store.close()
