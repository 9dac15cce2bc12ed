"""Leader election: one at a time, quickly replaced, and never acting on a lease that may have run out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from quartermaster.engine.election import LEASE_S, RETRY_S, Election, Leadership
from quartermaster.engine.fenced import FencedStore
from quartermaster.engine.metrics import LEADER, Metrics
from quartermaster.resources.kubernetes.core import Lease
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import clock
from quartermaster.support.errors import FencedError, NotFoundError, UnavailableError, UsageError
from quartermaster.support.tasks import TaskGroup
from quartermaster.testing.simulation import simulated, simulation_loop

from .samples import Switches, memory_store, node, settled


class Observing(ObjectStore):
    """A store without a lease clock of its own, as Kubernetes is: candidates must observe."""

    async def lease_held(self, namespace: str, name: str) -> bool | None:
        return None


class Log:
    """Who led from when to when, in seconds of the loop."""

    def __init__(self) -> None:
        self.terms: list[tuple[str, int, float]] = []
        self.leading: dict[str, Leadership] = {}

    async def candidate(self, store: Any, name: str, *, lease_s: int = 15, retry_s: float = 5.0) -> None:
        election = Election(store, name="leader", identity=name, lease_s=lease_s, retry_s=retry_s)
        while True:
            try:
                async with election.leading() as leadership:
                    self.terms.append((name, leadership.fence.epoch, asyncio.get_running_loop().time()))
                    self.leading[name] = leadership
                    await asyncio.Event().wait()
            except FencedError:
                await asyncio.sleep(retry_s)


async def lease_of(store: Any) -> Lease:
    return await store.get(Lease, "leader", "default")  # type: ignore[no-any-return]


@simulated(seeds=range(1, 6))
async def test_the_first_candidate_leads_at_once() -> None:
    store = memory_store()
    async with Election(store, name="leader", identity="a").leading() as leadership:
        fence = leadership.fence
        assert fence.holder == "a"
        assert leadership.holds
        spec = (await lease_of(store)).spec
        assert (spec.holder_identity, spec.lease_transitions, spec.lease_duration_seconds) == ("a", fence.epoch, 15)


async def epoch_of_a_term(store: Any, identity: str = "a") -> int:
    async with Election(store, name="leader", identity=identity).leading() as leadership:
        return leadership.fence.epoch


@simulated()
async def test_each_term_has_a_higher_epoch_however_quickly_they_follow_each_other() -> None:
    store = memory_store()
    epochs = [await epoch_of_a_term(store, identity) for identity in ("a", "b", "a", "a")]
    assert epochs == sorted(set(epochs))


@simulated()
async def test_an_epoch_does_not_fall_back_when_the_lease_was_deleted() -> None:
    store = memory_store()
    before = await epoch_of_a_term(store)
    await store.delete(Lease, "leader", "default")
    await settled(1)
    assert await epoch_of_a_term(store, "b") > before


@simulated()
async def test_an_epoch_does_not_fall_back_when_the_lease_comes_from_a_backup() -> None:
    store = memory_store()
    await epoch_of_a_term(store)
    backup = (await lease_of(store)).spec
    await settled(3600)
    before = await epoch_of_a_term(store)
    await store.update(msgspec.structs.replace(await lease_of(store), spec=backup))
    await settled(1)
    assert await epoch_of_a_term(store, "b") > before


@pytest.mark.parametrize(("wall_time", "why"), [(0.0, "it is behind"), (5e9, "it is ahead of what 32 bits hold")])
def test_a_wrong_clock_does_no_harm(wall_time: float, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @simulated()
    async def scenario() -> None:
        store = memory_store()
        election = Election(store, name="leader", identity="a")
        async with election.leading() as leadership:
            before = leadership.fence.epoch
        monkeypatch.setattr(clock, "wall_time", lambda: wall_time)
        async with election.leading() as leadership:
            assert before < leadership.fence.epoch < 2**31, why
            before = leadership.fence.epoch
        await store.delete(Lease, "leader", "default")
        async with election.leading() as leadership:
            assert before < leadership.fence.epoch < 2**31, "it remembers what it has seen"

    scenario()


@simulated()
async def test_a_candidate_that_is_cancelled_while_it_takes_the_lease_gives_it_back() -> None:
    taken = 0
    for turns in range(40):
        store = memory_store()
        candidate = asyncio.ensure_future(epoch_of_a_term(store))
        for _ in range(turns):
            await asyncio.sleep(0)
        candidate.cancel()
        await asyncio.wait([candidate])
        for lease in (await store.list(Lease)).items:
            taken += 1
            assert not lease.spec.holder_identity, f"after {turns} turns"
    assert taken > 5


@simulated()
async def test_a_candidate_that_does_not_know_whether_it_took_the_lease_gives_it_back_too() -> None:
    faults = Switches()
    store = memory_store(faults)

    async def lose_the_answer(call: str, key: str) -> None:
        if call == "transact":
            raise UnavailableError("cannot hear the answer")

    faults.after = lose_the_answer  # type: ignore[method-assign]
    candidate = asyncio.ensure_future(epoch_of_a_term(store))
    await settled(600)
    assert (await lease_of(store)).spec.holder_identity == "a"
    assert faults.calls.count("transact") < 150, "its own writes do not make it try again at once"
    del faults.after  # type: ignore[method-assign]
    candidate.cancel()
    await asyncio.wait([candidate])
    assert not (await lease_of(store)).spec.holder_identity


@pytest.mark.slow
@simulated(seeds=range(1, 6))
async def test_of_several_candidates_one_leads_for_as_long_as_it_renews() -> None:
    store, log = memory_store(), Log()
    async with TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.start(log.candidate(store, name))
        await settled(300)
        assert len(log.terms) == 1
        group.cancel()


@simulated(seeds=range(1, 11))
async def test_a_clean_end_lets_the_next_one_lead_at_once_in_the_next_epoch() -> None:
    store, log = memory_store(), Log()
    async with TaskGroup() as group:
        async with Election(store, name="leader", identity="first").leading() as leadership:
            group.start(log.candidate(store, "second"))
            await settled(60)
        ended = asyncio.get_running_loop().time()
        await settled(60)
        name, epoch, since = log.terms[0]
        assert name == "second"
        assert epoch > leadership.fence.epoch
        assert since - ended < 0.1
        group.cancel()


@pytest.mark.parametrize("kind", [ObjectStore, Observing])
def test_after_a_crash_the_next_one_leads_within_the_lease_and_one_retry(kind: type[ObjectStore]) -> None:
    @simulated(seeds=range(1, 21))
    async def scenario() -> None:
        loop, kv, log = simulation_loop(), MemoryKeyValue(), Log()
        first = loop.start_process("first", log.candidate(kind(kv), "first"))
        await settled(1)
        async with TaskGroup() as group:
            group.start(log.candidate(kind(kv), "second"))
            await settled(20 + 10 * loop.random.random())
            first.kill()
            died = loop.time()
            await settled(60)
            assert [name for name, _, _ in log.terms] == ["first", "second"]
            assert log.terms[0][1] < log.terms[1][1]
            assert log.terms[1][2] - died <= LEASE_S + RETRY_S
            group.cancel()

    scenario()


@simulated(seeds=range(1, 11))
async def test_a_leader_that_stands_still_has_stopped_acting_before_the_next_one_begins() -> None:
    loop, kv, log = simulation_loop(), MemoryKeyValue(), Log()
    first = loop.start_process("first", log.candidate(Observing(kv), "first"))
    await settled(1)
    async with TaskGroup() as group:
        group.start(log.candidate(Observing(kv), "second"))
        await settled(20)
        first.pause(60)
        await settled(40)
        assert log.terms[-1][0] == "second"
        assert not log.leading["first"].holds, "by its own clock, before it has run again"
        await settled(40)
        assert not log.leading["first"].holds
        assert log.leading["second"].holds
        first.kill()
        group.cancel()


@pytest.mark.parametrize("error", [UnavailableError("cannot reach the store"), RuntimeError("anything")])
def test_any_error_while_renewing_means_stepping_down_at_once(error: Exception) -> None:
    @simulated()
    async def scenario() -> None:
        faults = Switches()
        store = memory_store(faults)

        async def lead() -> None:
            async with Election(store, name="leader", identity="a").leading() as leadership:
                await settled(1)
                faults.failing["transact"] = error
                started = asyncio.get_running_loop().time()
                try:
                    await settled(60)
                finally:
                    assert not leadership.holds
                    assert asyncio.get_running_loop().time() - started <= RETRY_S

        with pytest.raises(FencedError, match="cannot renew the lease default/leader in epoch"):
            await lead()
        assert (await lease_of(store)).spec.holder_identity == "a", "nothing is released in doubt"

    scenario()


@simulated()
async def test_a_renewal_that_hangs_ends_the_lead_before_others_may_take_it() -> None:
    faults = Switches()
    store = memory_store(faults)
    hanging = asyncio.Event()

    async def hang(call: str, key: str) -> None:
        if call == "transact" and hanging.is_set():
            await asyncio.sleep(3600)

    faults.before = hang  # type: ignore[method-assign]

    async def lead() -> None:
        async with Election(store, name="leader", identity="a").leading():
            await settled(7)
            hanging.set()
            await settled(60)

    with pytest.raises(FencedError):
        await lead()
    assert asyncio.get_running_loop().time() <= 7 + LEASE_S - RETRY_S


@simulated()
async def test_somebody_elses_change_of_the_lease_ends_the_lead() -> None:
    store = memory_store()

    async def lead() -> None:
        async with Election(store, name="leader", identity="a").leading():
            lease = await lease_of(store)
            await store.update(msgspec.structs.replace(lease, spec=msgspec.structs.replace(lease.spec, strategy="x")))
            await settled(60)

    with pytest.raises(FencedError):
        await lead()


@simulated()
async def test_the_same_process_coming_back_begins_a_new_epoch() -> None:
    faults, log = Switches(), Log()
    store = memory_store(faults)
    async with TaskGroup() as group:
        group.start(log.candidate(store, "a"))
        await settled(7)
        faults.failing["transact"] = UnavailableError("cannot reach the store")
        await settled(10)
        faults.failing.clear()
        await settled(30)
        assert [name for name, _, _ in log.terms] == ["a", "a"]
        assert log.terms[0][1] < log.terms[1][1]
        group.cancel()


@simulated()
async def test_a_candidate_outlives_a_store_that_is_away() -> None:
    faults, log = Switches(), Log()
    store = memory_store(faults)
    for call in ("get", "range", "transact"):
        faults.failing[call] = UnavailableError("cannot reach the store")
    async with TaskGroup() as group:
        group.start(log.candidate(store, "a"))
        await settled(600)
        assert log.terms == []
        faults.failing.clear()
        await settled(10)
        assert len(log.terms) == 1
        group.cancel()


@simulated()
async def test_writes_of_a_deposed_leader_are_refused_by_the_store() -> None:
    store = memory_store()
    async with Election(store, name="leader", identity="a").leading() as old:
        lease = await lease_of(store)
        spec = msgspec.structs.replace(lease.spec, holder_identity="b", lease_transitions=old.fence.epoch + 1)
        await store.update(msgspec.structs.replace(lease, spec=spec))
        assert old.holds, "it does not know yet"
        with pytest.raises(FencedError):
            await FencedStore(store, old).create(node("x"))
        with pytest.raises(NotFoundError):
            await store.get(StorageNode, "x", "default")


@simulated()
async def test_writes_after_the_end_of_a_term_are_not_even_sent() -> None:
    faults = Switches()
    store = memory_store(faults)
    async with Election(store, name="leader", identity="a").leading() as leadership:
        fenced = FencedStore(store, leadership)
        created = await fenced.create(node("x"))
    faults.calls.clear()
    for write in (fenced.create(node("y")), fenced.update(created), fenced.delete(StorageNode, "x", "default")):
        with pytest.raises(FencedError, match=r"its epoch [0-9]+ is over"):
            await write
    assert faults.calls == []
    assert (await fenced.get(StorageNode, "x", "default")).metadata.name == "x"


@simulated()
async def test_identities_are_made_up_per_start() -> None:
    store = memory_store()
    assert Election(store, name="leader").identity != Election(store, name="leader").identity


def test_a_lease_too_short_for_its_retries_is_refused() -> None:
    with pytest.raises(UsageError, match="a lease of 10 s"):
        Election(memory_store(), name="leader", lease_s=10)


@simulated()
async def test_leading_is_a_metric() -> None:
    metrics = Metrics()
    async with Election(memory_store(), name="leader", identity="a", metrics=metrics).leading():
        assert metrics.value(LEADER, "default/leader") == 1
    assert metrics.value(LEADER, "default/leader") == 0
