"""Which of several processes leads: the one whose name stands in a Lease, for as long as it keeps renewing it.

- No two clocks are compared. Where the store has a lease clock of its own it is asked; elsewhere a candidate measures,
  by its own monotonic clock, how long it has not seen the Lease change.
- Every change of holder raises the epoch (`spec.leaseTransitions`), also when the same process comes back. It is also
  never less than the seconds since 2020: who refuses a lower epoch than it has seen must not be locked out for good
  by a Lease that was deleted, or that came back from a backup. Safety does not hang on that clock: where a Lease is
  there, the next epoch is higher than its own whatever the clock says.
- Any error while renewing means stepping down at once. A leader stops acting one retry before others may take over,
  so that a renewal that hangs, or a process that was stopped, does not act on a lease that has run out.
- A clean end clears the holder, and the next candidate, who watches the Lease, leads at once. So does a candidate that
  is cancelled while it takes the Lease. After a crash it is the lease's duration and at most one retry.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from quartermaster.engine.cache import Cache
from quartermaster.engine.metrics import LEADER, SILENT, Metrics
from quartermaster.resources.kubernetes.core import Lease, LeaseSpec
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Fence, Store
from quartermaster.stores.modify import modify
from quartermaster.support import clock, entropy
from quartermaster.support.backoff import Backoff
from quartermaster.support.deadlines import within
from quartermaster.support.errors import AlreadyExistsError, ConflictError, FencedError, NotFoundError, UsageError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

# The Lease of the one who runs the operators; in the namespace "default" unless configured otherwise.
LEADER_LEASE = "quartermaster-leader"
LEASE_S = 15
RETRY_S = 5.0
# Two attempts never come closer together than this, whatever the arithmetic of waiting or the watch says, and less
# close after errors: an attempt that was written and whose answer was lost wakes the candidate itself.
_LEAST_PAUSE = Backoff(first_s=0.05, limit_s=RETRY_S)
# 2020-01-01T00:00:00Z. Kubernetes keeps 32 bits for an epoch: counted from here, seconds fit until 2088. A clock that
# is further ahead than that leaves room for a million terms.
_EPOCH_ZERO_S = 1_577_836_800
_HIGHEST_FROM_CLOCK = 2**31 - 2**20

_log = logger("engine.election")


class Leadership:
    """One term: what may be done under it, and until when."""

    def __init__(self, fence: Fence, valid_until: float) -> None:
        self.fence = replace(fence, check=self.check)
        self._valid_until = valid_until
        self._ended = False

    @property
    def holds(self) -> bool:
        return not self._ended and asyncio.get_running_loop().time() < self._valid_until

    def check(self) -> None:
        if not self.holds:
            raise FencedError(
                f"cannot write as the leader {self.fence.holder}: its epoch {self.fence.epoch} is over",
                hint="stop; the next leader goes on",
            )

    def extend(self, valid_until: float) -> None:
        self._valid_until = valid_until

    def end(self) -> None:
        self._ended = True


class Election:
    """One candidate. `lease_s` is in whole seconds, because the Lease says it so."""

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        namespace: str = "default",
        identity: str = "",
        lease_s: int = LEASE_S,
        retry_s: float = RETRY_S,
        metrics: Metrics = SILENT,
    ) -> None:
        if lease_s <= 2 * retry_s:
            raise UsageError(
                f"cannot elect a leader with a lease of {lease_s} s and a retry of {retry_s} s",
                hint="the lease must be longer than two retries",
            )
        self.identity = identity or f"{socket.gethostname()}_{entropy.name_suffix(10)}"
        self._store = store
        self._name = name
        self._namespace = namespace
        self._lease_s = lease_s
        self.retry_s = retry_s
        self._gauge = metrics.gauge(LEADER, f"{namespace}/{name}")
        self._seen_version = ""
        self._seen_at = -math.inf
        self._expires_at: float | None = None  # by our own observation; None where the store's clock decides
        self._errors = 0  # of attempts in a row
        self._highest_epoch = 0  # of those that we have seen
        self._claimed: int | None = None  # the latest epoch in which the Lease may be ours

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership]:
        """Wait to lead, and lead while the block runs. The loss of the lead cancels the block with FencedError."""
        try:
            lease, leadership = await self._acquire()
        except BaseException:
            if self._claimed is not None:
                await self._release(self._claimed)
            raise
        try:
            async with TaskGroup() as group:
                renewal = group.start(self._renew(lease, leadership), name=f"renew-{self._name}")
                self._gauge.set(1)
                _log.info("leading", lease=self._name, holder=self.identity, epoch=leadership.fence.epoch)
                yield leadership
                renewal.cancel()
        finally:
            self._gauge.set(0)
            held = leadership.holds
            leadership.end()
            _log.info("no longer leading", lease=self._name, holder=self.identity, epoch=leadership.fence.epoch)
            if held:
                await self._release(leadership.fence.epoch)

    async def _acquire(self) -> tuple[Lease, Leadership]:
        wake = asyncio.Event()
        cache = Cache(self._store, Lease, self._namespace, fields=f"metadata.name={self._name}")
        cache.subscribe(lambda _old, _new: wake.set())
        async with TaskGroup() as group:
            watching = group.start(cache.run(), name=f"watch-{self._name}")
            won = await self._stand(wake)
            watching.cancel()
        return won

    async def _stand(self, wake: asyncio.Event) -> tuple[Lease, Leadership]:
        while True:
            won = await self._attempt()
            if won is not None:
                return won
            pause_s = self._pause_s()
            least_s = min(pause_s, _LEAST_PAUSE.delay_s(self._errors))
            await asyncio.sleep(least_s)
            try:
                async with within(pause_s - least_s):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()

    def _pause_s(self) -> float:
        """Until the next attempt: one retry, or exactly until the lease that we watch runs out."""
        if self._expires_at is None:
            return self.retry_s
        remaining_s = self._expires_at - asyncio.get_running_loop().time()
        return max(_LEAST_PAUSE.first_s, min(self.retry_s, remaining_s))

    async def _attempt(self) -> tuple[Lease, Leadership] | None:
        started = asyncio.get_running_loop().time()
        try:
            async with within(self.retry_s):
                lease = await self._take()
        except (AlreadyExistsError, ConflictError):
            self._errors = 0
            return None  # another candidate was faster
        except Exception as error:  # a candidate outlives whatever the store does
            self._errors += 1
            # Once loud, so that people know why nothing happens; then it is tried again and again.
            tell = _log.warning if self._errors == 1 else _log.info
            tell("cannot stand for election now", lease=self._name, error=f"{type(error).__name__}: {error}")
            return None
        self._errors = 0
        if lease is None:
            return None
        fence = Fence(self._namespace, self._name, self.identity, lease.spec.lease_transitions or 0)
        leadership = Leadership(fence, self._deadline(started))
        return (lease, leadership) if leadership.holds else None

    async def _take(self) -> Lease | None:
        """The Lease with us as holder, or None when somebody else holds it."""
        try:
            lease = await self._store.get(Lease, self._name, self._namespace)
        except NotFoundError:
            meta = ObjectMeta(name=self._name, namespace=self._namespace)
            return await self._store.create(Lease(metadata=meta, spec=self._claim()))
        spec = lease.spec
        self._highest_epoch = max(self._highest_epoch, spec.lease_transitions or 0)
        if not await self._may_take(lease.metadata.resource_version, spec):
            return None
        return await self._store.update(msgspec.structs.replace(lease, spec=self._claim()))

    async def _may_take(self, version: str, spec: LeaseSpec) -> bool:
        now = asyncio.get_running_loop().time()
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, now
        self._expires_at = None
        # Our own name can only be from an earlier term of this very process, which has ended.
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return True
        held = await self._store.lease_held(self._namespace, self._name)
        if held is not None:
            return not held
        self._expires_at = self._seen_at + (spec.lease_duration_seconds or LEASE_S)
        return now >= self._expires_at

    def _claim(self) -> LeaseSpec:
        """What the Lease says once it is ours, in an epoch higher than any before."""
        seconds = int(clock.wall_time()) - _EPOCH_ZERO_S
        self._highest_epoch = self._claimed = max(self._highest_epoch + 1, min(seconds, _HIGHEST_FROM_CLOCK))
        now = clock.micro_timestamp()
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._lease_s,
            acquire_time=now,
            renew_time=now,
            lease_transitions=self._claimed,
        )

    def _deadline(self, started: float) -> float:
        """Until when a lease counts that was written by a call started then: one retry less than others wait."""
        return started + self._lease_s - self.retry_s

    async def _renew(self, lease: Lease, leadership: Leadership) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.retry_s)
            started = loop.time()
            try:
                leadership.check()
                async with within(self.retry_s):
                    spec = msgspec.structs.replace(lease.spec, renew_time=clock.micro_timestamp())
                    lease = await self._store.update(msgspec.structs.replace(lease, spec=spec))
                leadership.check()  # the answer may have been long in coming to a process that was stopped
            except Exception as error:
                leadership.end()
                raise FencedError(
                    f"cannot renew the lease {self._namespace}/{self._name} in epoch {leadership.fence.epoch}: "
                    f"{type(error).__name__}: {error}",
                    hint="everything that the leader runs was stopped",
                ) from error
            leadership.extend(self._deadline(started))

    async def _release(self, epoch: int) -> None:
        """Read first: what was on its way when the end came may have been written."""

        def clear(lease: Lease) -> Lease:
            spec = lease.spec
            if spec.holder_identity != self.identity or (spec.lease_transitions or 0) > epoch:
                return lease
            return msgspec.structs.replace(
                lease, spec=msgspec.structs.replace(spec, holder_identity="", renew_time=clock.micro_timestamp())
            )

        try:
            async with within(self.retry_s):
                await modify(self._store, Lease, self._name, self._namespace, clear)
                self._claimed = None
        except Exception as error:  # it runs out by itself then
            _log.info("cannot release the lease", lease=self._name, error=f"{type(error).__name__}: {error}")
