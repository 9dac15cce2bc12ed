"""A status of which only the messages change is written a little later, and with the next one that says more."""

from __future__ import annotations

import asyncio

from quartermaster.hooks import hook_controllers
from quartermaster.hooks.reconciling import WORDS_DELAY_S
from quartermaster.hooks.watched import differ_in_words
from quartermaster.resources import StorageNode
from quartermaster.resources.agility import CStorClusterPlan, ProgressStatus
from quartermaster.resources.conditions import Condition
from quartermaster.testing.simulation import simulated

from .toy import TOY, Recording, memory_store, running, secret, storage_node, with_devices

STATUS = "status StorageNode a"


@simulated(seeds=range(1, 3))
async def test_messages_that_change_in_a_row_are_one_write_and_the_last_one_is_written() -> None:
    store = memory_store()
    await store.create(storage_node())
    recording = Recording(store)
    async with running(recording, *hook_controllers([TOY])):
        await asyncio.sleep(30)
        before = recording.writes.count(STATUS)
        for number in range(5):
            await store.create(secret(f"s{number}"))
            await asyncio.sleep(WORDS_DELAY_S / 10)
        assert recording.writes.count(STATUS) == before
        await asyncio.sleep(2 * WORDS_DELAY_S)
        assert recording.writes.count(STATUS) == before + 1
        assert (await store.get(StorageNode, "a", "default")).status.message == "s0 s1 s2 s3 s4"


@simulated(seeds=range(1, 3))
async def test_what_says_more_is_written_at_once_and_takes_the_words_along() -> None:
    store = memory_store()
    await store.create(storage_node())
    async with running(store, *hook_controllers([TOY])):
        await asyncio.sleep(30)
        await store.create(secret("s"))
        await asyncio.sleep(WORDS_DELAY_S / 10)
        await store.update(with_devices(await store.get(StorageNode, "a", "default"), 1))
        await asyncio.sleep(WORDS_DELAY_S / 2)
        found = await store.get(StorageNode, "a", "default")
        assert (found.status.message, found.status.observed_generation) == ("s", found.metadata.generation)


def plan(phase: str, message: str, reason: str = "DisksPending", status: str = "False") -> CStorClusterPlan:
    condition = Condition(type="Ready", status=status, reason=reason, message=message)
    return CStorClusterPlan(status=ProgressStatus(phase=phase, message=message, conditions=(condition,)))


def test_words_are_the_messages_of_a_status_and_of_its_conditions() -> None:
    before = plan("Pending", "1 of 3")
    assert differ_in_words(before, plan("Pending", "2 of 3"))
    assert not differ_in_words(before, plan("Ready", "3 of 3"))
    assert not differ_in_words(before, plan("Pending", "2 of 3", reason="ClaimLost"))
    assert not differ_in_words(before, plan("Pending", "2 of 3", status="True"))
