"""Runs the assignments of one host: each one after the other, different ones at the same time.

A run that takes longer than its deadline is cancelled, and with it the programs it started; the others do not notice.
Every configuration is run again now and then, so that what died is found and started again; the more assignments a host
has, the less often each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from quartermaster.backends.base import AgentContext, KnowsFileSystems, ServiceAgent
from quartermaster.engine.cache import Cache, Caches
from quartermaster.engine.controller import Scope, all_synced
from quartermaster.engine.queue import WorkQueue, queue_meters
from quartermaster.engine.watching import generation_changed
from quartermaster.engine.workers import DONE, Result, Workers
from quartermaster.orchestration import reports
from quartermaster.orchestration.reports import Refuse, Run
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.marks import DELETE_IN_USE
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import FAILED, RUNNING, SUCCEEDED, Assignment, AssignmentStatus
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support import clock, entropy
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError, NotFoundError, QuartermasterError
from quartermaster.support.log import logger
from quartermaster.support.redaction import redact

MakeContext = Callable[[ServiceAgent, Assignment, Callable[[str], Any]], AgentContext]

WORKERS = 64
AT_ONCE = 16
# A host with many assignments verifies at most so many of them per second.
VERIFICATIONS_PER_S = 5.0
# A second run of a finished assignment by itself never takes longer: its own deadline ends it before.
_LONGEST_S = 86_400.0
_RETRY = Backoff(first_s=1.0, limit_s=300.0)
# Many times what a lease lasts.
_EPOCHS_KEPT_S = 600.0

_log = logger("orchestration.running")


def _is_forced(assignment: Assignment | None) -> bool:
    return assignment is not None and DELETE_IN_USE in assignment.metadata.annotations


class _Memory:
    """What this process knows of one assignment beside what the cache shows."""

    def __init__(self, uid: str, agent: str) -> None:
        self.uid = uid
        self.agent = agent
        self.said: AssignmentStatus | None = None
        self.is_sure = True  # whether what was said last is what the store has: a write that failed may have been done
        self.failures = 0


class _Epochs:
    """The highest epoch that was seen of each assignment. It is known for a while after the assignment is gone: so long
    somebody who was deposed may still write.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._gone: dict[str, float] = {}  # name → when, in that order

    def highest(self, name: str) -> int:
        return self._seen.get(name, 0)

    def saw(self, name: str, epoch: int) -> None:
        self._gone.pop(name, None)
        self._seen[name] = max(self.highest(name), epoch)

    def is_gone(self, name: str) -> None:
        now = asyncio.get_running_loop().time()
        if name in self._seen:
            self._gone.setdefault(name, now)
        while self._gone and now - self._gone[oldest := next(iter(self._gone))] > _EPOCHS_KEPT_S:
            del self._gone[oldest], self._seen[oldest]

    def __len__(self) -> int:
        return len(self._seen)


class AssignmentRunner:
    """A service of an agent's runtime."""

    name = "assignments"

    def __init__(
        self,
        host: str,
        namespace: str,
        agents: Mapping[str, ServiceAgent],
        make_context: Callable[[Store, ServiceAgent, Assignment, Callable[[str], Any]], AgentContext],
        timings: Timings,
        *,
        ready: Callable[[str], str] = lambda _agent: "",
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        """`ready` says why an agent cannot work yet, or nothing; `finished` is called after each run that may have
        changed the disks of the host.
        """
        self.runs = 0
        self._host = host
        self._namespace = namespace
        self._agents = dict(agents)
        self._make_context = make_context
        self._timings = timings
        self._ready = ready
        self._finished = finished
        self._memory: dict[Key, _Memory] = {}
        self._epochs = _Epochs()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._queue: WorkQueue[Key] | None = None

    def prepare(self, caches: Caches) -> None:
        self._cache(caches)

    def verify(self, agent: str = "") -> None:
        """Run the configurations again now: of one agent, or of all. Returns at once."""
        if self._queue is None:
            return
        for key, memory in self._memory.items():
            if memory.said is not None and (not agent or memory.agent == agent):
                self._queue.add(key)

    def _retry_failed(self) -> None:
        """A disk came or went: what stands on it need not wait until its next try."""
        for key, memory in self._memory.items():
            if self._queue is not None and memory.said is not None and memory.said.state == FAILED:
                self._queue.add(key)

    async def run(self, scope: Scope) -> None:
        cache = self._cache(scope.caches)
        # What could not be told is tried again no later than what could: the store may be back long before.
        queue: WorkQueue[Key] = WorkQueue(
            backoff=Backoff(limit_s=self._timings.verify_s),
            meters=queue_meters(scope.metrics, self.name),
            everything=cache.keys,
        )
        self._queue = queue

        def handle(old: Assignment | None, new: Assignment | None) -> None:
            obj = new or old
            if obj is not None and (generation_changed(old, new) or _is_forced(old) != _is_forced(new)):
                queue.add(obj.key)

        unsubscribe = cache.subscribe(handle)

        async def work(key: Key) -> Result:
            return await self._reconcile(scope.store, cache, key)

        try:
            if await all_synced(self.name, [cache], scope.stopping):
                workers = Workers(self.name, queue, work, count=WORKERS, timeout_s=_LONGEST_S, metrics=scope.metrics)
                await workers.run(scope.stopping, drain_s=scope.drain_s)
        finally:
            unsubscribe()
            queue.close(drop=True)
            self._queue = None

    def _cache(self, caches: Caches) -> Cache[Assignment]:
        return caches.of(Assignment, self._namespace, fields=f"spec.host={self._host}")

    async def _reconcile(self, store: Store, cache: Cache[Assignment], key: Key) -> Result:
        assignment = cache.get(key)
        if assignment is None:
            self._memory.pop(key, None)
            self._epochs.is_gone(key.name)
            return DONE
        memory = self._memory.get(key)
        if memory is None or memory.uid != assignment.metadata.uid:
            memory = self._memory[key] = _Memory(assignment.metadata.uid, assignment.spec.agent)
        highest = self._epochs.highest(key.name)
        verdict = reports.decide(assignment, self._agents, highest_epoch=highest, last=memory.said)
        if verdict is None:
            return DONE
        if isinstance(verdict, Refuse):
            _log.warning("assignment refused", assignment=str(key), why=verdict.message)
            if verdict.tell:
                await self._say(store, assignment, memory, _refused(assignment, memory, verdict.message))
            return DONE
        self._epochs.saw(key.name, assignment.spec.epoch)
        if waiting_for := self._ready(assignment.spec.agent):
            _log.info("assignment waits", assignment=str(key), why=waiting_for)
            return Result(requeue_after_s=1.0)
        return await self._perform(store, assignment, memory, verdict)

    async def _perform(self, store: Store, assignment: Assignment, memory: _Memory, run: Run) -> Result:
        before = memory.said if memory.said is not None else assignment.status
        status = before if run.quiet else reports.triggered(assignment)
        if not run.quiet and before.state != RUNNING:
            await self._say(store, assignment, memory, status)
        async with self._slots:
            if not run.quiet:
                status = reports.running(status, now=clock.timestamp())
                await self._say(store, assignment, memory, status)
            self.runs += 1
            outcome = await self._attempt(store, assignment, memory, run, status)
        changes_disks = isinstance(self._agents[assignment.spec.agent], KnowsFileSystems)
        if changes_disks:
            self._finished()
        await self._say(store, assignment, memory, outcome)
        news = outcome.state == SUCCEEDED and (before.state, before.result) != (SUCCEEDED, outcome.result)
        if news and changes_disks:
            self._retry_failed()
        if outcome.state == FAILED:
            delay_s = _RETRY.delay_s(memory.failures)
            memory.failures += 1
            return Result(requeue_after_s=delay_s)
        memory.failures = 0
        if run.action == "destroy":
            return DONE
        return Result(requeue_after_s=min(self._verify_after_s(), reports.again_after_s(outcome)))

    async def _attempt(
        self, store: Store, assignment: Assignment, memory: _Memory, run: Run, status: AssignmentStatus
    ) -> AssignmentStatus:
        """What came of it. Only being told to stop is passed on: the run is repeated after the next start."""
        agent = self._agents[assignment.spec.agent]
        deadline_s = min(assignment.spec.deadline_seconds or self._timings.deadline_s, _LONGEST_S / 2)

        async def tell(message: str) -> None:
            if not run.quiet and memory.said is not None and memory.said.message != message:
                await self._say(store, assignment, memory, replace(memory.said, message=str(redact(message))))

        context = self._make_context(store, agent, assignment, tell)
        try:
            async with within(deadline_s) as limit:
                if run.action == "destroy":
                    await agent.destroy_local_service(context)
                    result = None
                else:
                    result = msgspec.json.decode(msgspec.json.encode(await agent.configure_local_service(context)))
        except Exception as error:  # whatever an agent raises is its report, and hurts no other assignment
            timed_out = isinstance(error, TimeoutError) and limit.expired()
            shown: Exception = error
            if timed_out:
                shown = DeadlineError(f"cannot {run.action} {assignment.metadata.name} within {deadline_s:g} s")
            text = str(shown) if isinstance(shown, QuartermasterError) else f"{type(shown).__name__}: {shown}"
            _log.warning(
                "assignment failed",
                assignment=str(assignment.key),
                error=text,
                exc_info=None if isinstance(shown, QuartermasterError) else error,
            )
            reason = shown.reason if isinstance(shown, QuartermasterError) else "Unexpected"
            return reports.failed(status, str(redact(text)), now=clock.timestamp(), reason=reason)
        return reports.succeeded(status, result, now=clock.timestamp())

    async def _say(self, store: Store, assignment: Assignment, memory: _Memory, status: AssignmentStatus) -> None:
        """Report, unless it was said before. Nobody is told of an assignment that was deleted meanwhile."""
        if memory.is_sure and status == (memory.said if memory.said is not None else assignment.status):
            memory.said = status
            return
        memory.is_sure = False
        uid = assignment.metadata.uid

        def with_status(current: Assignment) -> Assignment:
            return current if current.metadata.uid != uid else replace(current, status=status)

        try:
            await modify(store, Assignment, assignment.metadata.name, self._namespace, with_status, status=True)
        except NotFoundError:
            _log.info("the assignment is gone", assignment=str(assignment.key))
        memory.said, memory.is_sure = status, True

    def _verify_after_s(self) -> float:
        return entropy.jitter(max(self._timings.verify_s, len(self._memory) / VERIFICATIONS_PER_S), 0.2)


def _refused(assignment: Assignment, memory: _Memory, message: str) -> AssignmentStatus:
    status = memory.said if memory.said is not None else assignment.status
    if status.observed_generation != assignment.spec.generation:
        status = reports.triggered(assignment)
    return reports.failed(status, message, now=clock.timestamp(), reason=reports.NO_AGENT)
