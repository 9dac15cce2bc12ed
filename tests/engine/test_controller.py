"""Controllers: when a reconciler is called, and what follows from how the call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from quartermaster.engine.controller import DONE, Controller, Request, Result, Scope
from quartermaster.engine.metrics import HANDLER_ERRORS, RECONCILE_RESULTS
from quartermaster.engine.watching import generation_changed, mapped, owned
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Key, ObjectMeta
from quartermaster.resources.storage import StorageNode
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import ConflictError, FencedError, TerminalError, UnavailableError
from quartermaster.testing.simulation import simulated

from .samples import Switches, memory_store, node, reference, relabelled, serving, settled

Work = Callable[[Request], Awaitable[Result]]


class Acting:
    """A reconciler that writes down its calls and then does what the test says."""

    def __init__(self, work: Work | None = None) -> None:
        self.calls: list[tuple[float, str]] = []
        self.working: list[str] = []
        self.most_at_once = 0
        self._work = work

    def __call__(self, _: Scope) -> Acting:
        return self

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.calls]

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.calls]

    async def reconcile(self, request: Request) -> Result:
        assert request.name not in self.working, "two workers on one key"
        self.calls.append((round(asyncio.get_running_loop().time(), 3), request.name))
        self.working.append(request.name)
        self.most_at_once = max(self.most_at_once, len(self.working))
        try:
            return await self._work(request) if self._work else DONE
        finally:
            self.working.remove(request.name)


@simulated(seeds=range(1, 6))
async def test_every_object_is_reconciled_at_the_start_and_after_each_change() -> None:
    store, acting = memory_store(), Acting()
    for name in ("a", "b"):
        await store.create(node(name))
    async with serving(store, Controller("test", StorageNode, acting, workers=1)):
        await settled()
        assert acting.names == ["a", "b"]
        await store.update(relabelled(await store.get(StorageNode, "b", "default"), x="y"))
        await settled()
        await store.delete(StorageNode, "a", "default")
        await settled()
    assert acting.names == ["a", "b", "b", "a"]


@simulated(seeds=range(1, 11))
async def test_several_workers_never_hold_one_key_twice() -> None:
    async def slow(_: Request) -> Result:
        await asyncio.sleep(1)
        return DONE

    store, acting = memory_store(), Acting(slow)
    async with serving(store, Controller("test", StorageNode, acting, workers=4)):
        for number in range(8):
            await store.create(node(f"node-{number}"))
        for round_ in range(5):
            for number in range(8):
                current = await store.get(StorageNode, f"node-{number}", "default")
                await store.update(relabelled(current, round=str(round_)))
            await asyncio.sleep(0.4)
        await settled(30)
    assert acting.most_at_once == 4
    assert set(acting.names) == {f"node-{number}" for number in range(8)}


@pytest.mark.slow
@simulated()
async def test_done_means_nothing_until_something_changes() -> None:
    store, acting = memory_store(), Acting()
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)) as scope:
        await settled(24 * 3600)
        assert scope.metrics.value(RECONCILE_RESULTS, "test", "done") == 1
    assert len(acting.calls) == 1


@simulated()
async def test_requeue_after_means_once_more_then() -> None:
    async def again(_: Request) -> Result:
        return Result(requeue_after_s=60)

    store, acting = memory_store(), Acting(again)
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)):
        await settled(200)
    assert acting.times == [acting.times[0] + n * 60 for n in range(4)]


@simulated()
async def test_a_change_comes_before_the_requeue_and_puts_it_off() -> None:
    async def again(_: Request) -> Result:
        return Result(requeue_after_s=60)

    store, acting = memory_store(), Acting(again)
    created = await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)):
        await settled(30)
        await store.update(relabelled(created, x="y"))
        await settled(70)
    gaps = [round(b - a, 1) for a, b in zip(acting.times, acting.times[1:], strict=False)]
    assert gaps == [30, 60]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ConflictError("overtaken"), asyncio.CancelledError()])
def test_an_error_is_tried_again_with_growing_delays_and_forgotten_after_success(error: BaseException) -> None:
    @simulated()
    async def scenario() -> None:
        left = [4]

        async def failing(_: Request) -> Result:
            if left[0]:
                left[0] -= 1
                raise error
            return DONE

        store, acting = memory_store(), Acting(failing)
        created = await store.create(node("a"))
        backoff = Backoff(first_s=1, jitter=0)
        async with serving(store, Controller("test", StorageNode, acting, backoff=backoff)):
            await settled(60)
            gaps = [round(b - a, 3) for a, b in zip(acting.times, acting.times[1:], strict=False)]
            assert gaps == [1, 2, 4, 8]
            left[0] = 1
            await store.update(relabelled(created, x="y"))
            await settled(60)
            assert round(acting.times[-1] - acting.times[-2], 3) == 1

    scenario()


@simulated()
async def test_one_object_that_always_fails_does_not_hold_up_the_others() -> None:
    async def work(request: Request) -> Result:
        if request.name == "bad":
            raise ZeroDivisionError
        return DONE

    store, acting = memory_store(), Acting(work)
    async with serving(store, Controller("test", StorageNode, acting, workers=1)) as scope:
        for name in ("bad", "good-1", "good-2"):
            await store.create(node(name))
        await settled()
        assert {"good-1", "good-2"} <= set(acting.names)
        assert scope.metrics.value(RECONCILE_RESULTS, "test", "error") == acting.names.count("bad") > 1


@simulated()
async def test_a_store_that_asks_for_patience_gets_it() -> None:
    async def refused(_: Request) -> Result:
        raise UnavailableError("cannot reach the store", retry_after_s=30)

    store, acting = memory_store(), Acting(refused)
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)):
        await settled(100)
    assert len(acting.calls) == 4


@simulated()
async def test_a_terminal_error_is_not_tried_again_until_the_object_changes() -> None:
    async def hopeless(_: Request) -> Result:
        raise TerminalError("cannot use the node: it has no devices")

    store, acting = memory_store(), Acting(hopeless)
    created = await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)) as scope:
        await settled(3600)
        assert len(acting.calls) == 1
        await store.update(relabelled(created, x="y"))
        await settled(3600)
        assert scope.metrics.value(RECONCILE_RESULTS, "test", "terminal") == 2
    assert len(acting.calls) == 2


@simulated()
async def test_a_reconcile_that_takes_too_long_is_ended_and_tried_again() -> None:
    async def hanging(_: Request) -> Result:
        await asyncio.sleep(3600)
        return DONE

    store, acting = memory_store(), Acting(hanging)
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting, timeout_s=10)) as scope:
        await settled(15)
        assert scope.metrics.value(RECONCILE_RESULTS, "test", "timeout") == 1
        assert len(acting.calls) == 2


@simulated()
async def test_a_reconciler_that_returns_nothing_has_a_bug_and_is_treated_so() -> None:
    async def nothing(_: Request) -> Result:
        return None  # type: ignore[return-value]

    store, acting = memory_store(), Acting(nothing)
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting)) as scope:
        await settled(1)
        assert scope.metrics.value(RECONCILE_RESULTS, "test", "error") >= 1


@simulated()
async def test_a_fenced_write_stops_the_controller() -> None:
    async def deposed(_: Request) -> Result:
        raise FencedError("cannot write: somebody else leads")

    store = memory_store()
    await store.create(node("a"))
    with pytest.raises(FencedError):
        async with serving(store, Controller("test", StorageNode, Acting(deposed))):
            await settled()


@simulated()
async def test_a_predicate_keeps_out_what_does_not_matter() -> None:
    store, acting = memory_store(), Acting()
    created = await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting, predicate=generation_changed)):
        await settled()
        labelled = await store.update(relabelled(created, x="y"))
        await settled()
        assert len(acting.calls) == 1
        await store.update(
            msgspec.structs.replace(labelled, spec=msgspec.structs.replace(labelled.spec, devices=("/dev/vdc",)))
        )
        await settled()
        assert len(acting.calls) == 2


@simulated()
async def test_a_change_of_an_owned_object_concerns_its_controller() -> None:
    store, acting = memory_store(), Acting()
    owner = await store.create(node("a"))
    controller = Controller("test", StorageNode, acting, watches=[owned(ConfigMap, by=StorageNode)])
    async with serving(store, controller):
        await settled()
        meta = ObjectMeta(name="c", namespace="default", owner_references=(reference(owner, controller=True),))
        await store.create(ConfigMap(metadata=meta))
        await settled()
        await store.delete(ConfigMap, "c", "default")
        await settled()
    assert acting.names == ["a", "a", "a"]


@simulated()
async def test_a_mapped_watch_asks_about_both_states() -> None:
    store, acting = memory_store(), Acting()
    watch = mapped(ConfigMap, lambda obj: [Request("default", name) for name in obj.data])
    async with serving(store, Controller("test", StorageNode, acting, watches=[watch])):
        created = await store.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"a": ""}))
        await settled()
        await store.update(msgspec.structs.replace(created, data={"b": ""}))
        await settled()
    assert acting.names == ["a", "a", "b"]


@simulated(seeds=range(1, 6))
async def test_work_begins_when_all_caches_are_filled_those_it_only_reads_included() -> None:
    faults = Switches()
    store = memory_store(faults)
    seen: list[int] = []

    class Reading:
        def __init__(self, scope: Scope) -> None:
            self._maps = scope.caches.of(ConfigMap)

        async def reconcile(self, request: Request) -> Result:
            seen.append(len(self._maps))
            assert self._maps.get(Key("default", "c")) is not None
            return DONE

    await store.create(node("a"))
    await store.create(ConfigMap(metadata=ObjectMeta(name="c", namespace="default")))
    faults.failing["range"] = UnavailableError("cannot reach the store")
    async with serving(store, Controller("test", StorageNode, Reading, reads=[ConfigMap])):
        await settled(120)
        assert seen == []
        faults.failing.clear()
        await settled(60)
        assert seen == [1]


@simulated()
async def test_at_a_clean_end_what_is_in_hand_is_finished_and_the_rest_is_left() -> None:
    finished: list[str] = []

    async def slow(request: Request) -> Result:
        await asyncio.sleep(3)
        finished.append(request.name)
        return DONE

    store = memory_store()
    for name in ("a", "b", "c"):
        await store.create(node(name))
    start = asyncio.get_running_loop().time()
    async with serving(store, Controller("test", StorageNode, Acting(slow), workers=1), drain_s=10):
        await settled(1)
    assert finished == ["a"]
    assert asyncio.get_running_loop().time() - start == pytest.approx(3, abs=0.1)


@simulated()
async def test_the_drain_is_bounded() -> None:
    async def endless(_: Request) -> Result:
        await asyncio.sleep(1e6)
        return DONE

    store = memory_store()
    await store.create(node("a"))
    start = asyncio.get_running_loop().time()
    async with serving(store, Controller("test", StorageNode, Acting(endless), timeout_s=1e6), drain_s=10):
        await settled(1)
    assert asyncio.get_running_loop().time() - start == pytest.approx(11, abs=0.1)


@simulated()
async def test_a_controller_that_waits_for_a_store_ends_at_once_when_asked() -> None:
    faults = Switches()
    faults.failing["range"] = UnavailableError("cannot reach the store")
    start = asyncio.get_running_loop().time()
    async with serving(memory_store(faults), Controller("test", StorageNode, Acting())):
        await settled(100)
    assert asyncio.get_running_loop().time() - start == pytest.approx(100)


@simulated()
async def test_a_queue_smaller_than_the_world_reaches_every_object_all_the_same() -> None:
    store, acting = memory_store(), Acting()
    for number in range(50):
        await store.create(node(f"node-{number:02}"))
    async with serving(store, Controller("test", StorageNode, acting, queue_bound=8, workers=1)):
        await settled()
    assert set(acting.names) == {f"node-{number:02}" for number in range(50)}


def failing(*_: object) -> bool:
    raise ZeroDivisionError("a bug")


@simulated()
async def test_a_predicate_that_fails_counts_as_passed_because_a_key_must_not_be_lost() -> None:
    store, acting = memory_store(), Acting()
    await store.create(node("a"))
    async with serving(store, Controller("test", StorageNode, acting, predicate=failing)) as scope:
        await settled()
        assert acting.names == ["a"]
        assert scope.metrics.value(HANDLER_ERRORS, "storagenodes.coreos.com") == 1


@simulated()
async def test_a_mapper_that_fails_on_one_object_does_so_alone_also_after_an_overflow() -> None:
    store, acting = memory_store(), Acting()
    for name in ("a", "broken", "z"):
        await store.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    for number in range(50):
        await store.create(node(f"node-{number:02}"))

    def name_of(config: ConfigMap) -> list[Request]:
        return [Request("default", {"a": "1", "z": "2"}[config.metadata.name])]

    watch = mapped(ConfigMap, name_of)
    controller = Controller("test", StorageNode, acting, watches=[watch], queue_bound=8, workers=1)
    async with serving(store, controller) as scope:
        await settled()
        assert {"1", "2"} < set(acting.names)
        assert scope.metrics.value(HANDLER_ERRORS, "configmaps") >= 2
        acting.calls.clear()
        await store.create(node("new"))
        await settled()
        assert acting.names == ["new"]
