"""A controller that dies after any of its writes leaves nothing behind that the next one does not finish; both ways of
calling a hook lead to the same writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from quartermaster.backends.cstor.hook import Hook
from quartermaster.hooks import OverHTTP, hook_controllers
from quartermaster.hooks.service import HookService, ServiceOptions
from quartermaster.resources import ConfigMap, Node, ObjectMeta, StorageNode
from quartermaster.stores.base import Store
from quartermaster.testing.simulation import simulated

from .lives import eventually, life
from .toy import HOLDING, TOY, KilledError, Recording, everything, memory_store, running, storage_node, with_devices

Workflow = Callable[[Store], Awaitable[None]]


async def prepared() -> Store:
    store = memory_store()
    await store.create(Node(metadata=ObjectMeta(name="a")))
    return store


async def creation(store: Store) -> None:
    await store.create(storage_node(devices=3))


async def change(store: Store) -> None:
    await store.update(with_devices(await store.get(StorageNode, "a", "default"), 1))


async def deletion(store: Store) -> None:
    await store.delete(StorageNode, "a", "default")


async def lived(hook: Hook, store: Any, *workflows: Workflow, to_memory: Store | None = None) -> None:
    """A controller that sees all of that happen."""
    async with running(store, *hook_controllers([hook])):
        for workflow in workflows:
            await workflow(to_memory or store)
            await asyncio.sleep(30)


WORKFLOWS: dict[str, tuple[tuple[Workflow, ...], Workflow]] = {
    "creation": ((), creation),
    "change": ((creation,), change),
    "deletion": ((creation,), deletion),
}


@pytest.mark.parametrize("hook", [TOY, HOLDING], ids=("toy", "holding"))
@pytest.mark.parametrize("name", WORKFLOWS)
@simulated(seeds=(1,))
async def test_after_a_crash_at_any_write_the_end_is_the_same_and_nothing_is_doubled(name: str, hook: Hook) -> None:
    before, workflow = WORKFLOWS[name]
    calm = await prepared()
    await lived(hook, calm, *before)
    counting = Recording(calm)
    await lived(hook, counting, workflow, to_memory=calm)
    wanted, total = await everything(calm), len(counting.writes)
    assert total >= 4
    for dies_after in range(1, total + 1):
        store = await prepared()
        await lived(hook, store, *before)
        with suppress(KilledError):
            await lived(hook, Recording(store, dies_after=dies_after), workflow, to_memory=store)
        survivor = Recording(store)
        async with running(survivor, *hook_controllers([hook])):
            await asyncio.sleep(30)
        assert await everything(store) == wanted, f"after a crash at write {dies_after}"
        assert len(survivor.writes) <= total, f"after a crash at write {dies_after}: {survivor.writes}"


async def test_in_process_and_over_http_the_same_is_written() -> None:
    in_process = await life(await prepared())
    async with HookService([TOY], ServiceOptions(port=0)).serving() as port:
        caller = OverHTTP(f"http://127.0.0.1:{port}")
        over_http = await life(await prepared(), caller=caller)
        await caller.close()
    assert over_http == in_process
    assert [write for write in in_process if write.startswith("create")] == [
        f"create ConfigMap a-{n}" for n in range(3)
    ]


@pytest.mark.slow
async def test_a_service_that_is_away_is_waited_for() -> None:
    store = await prepared()
    async with HookService([TOY], ServiceOptions(port=0)).serving() as port:
        pass
    caller = OverHTTP(f"http://127.0.0.1:{port}")
    async with running(store, *hook_controllers([TOY], caller=caller)):
        await creation(store)
        await asyncio.sleep(0.2)
        assert (await store.list(ConfigMap)).items == ()
        async with HookService([TOY], ServiceOptions(port=port)).serving():

            async def made() -> bool:
                return len((await store.list(ConfigMap)).items) == 3

            await eventually(made)
    await caller.close()
