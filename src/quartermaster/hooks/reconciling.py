"""One watched object: call its hook with what belongs to it, and make true what the answer says.

The order is that of the contract in `backends/cstor/hook.py`: a finalizer before anything is made, then labels and
annotations, attachments, and the status last. Whatever is interrupted in between is found and finished by the next
call, because everything is decided anew from what is there. What takes something away is decided twice, the second time
by what the store itself shows.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from quartermaster.backends.cstor.hook import Hook, HookEvent, SyncRequest, SyncResponse
from quartermaster.engine import DONE, Request, Result, Scope
from quartermaster.engine.metrics import HOOK_CALLS, HOOK_DURATION
from quartermaster.hooks.applying import Applier
from quartermaster.hooks.callers import Caller
from quartermaster.hooks.confirming import Confirming, Picture, takes_away
from quartermaster.hooks.deciding import Writes, decide
from quartermaster.hooks.expectations import Expectations
from quartermaster.hooks.fulfilled import Fulfilled
from quartermaster.hooks.gathering import Gatherer
from quartermaster.hooks.watched import (
    differ_in_words,
    finalizer_of,
    is_collected,
    with_finalizer,
    with_status,
    with_texts,
    without_finalizer,
)
from quartermaster.resources.model import Object
from quartermaster.support import clock
from quartermaster.support.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    QuartermasterError,
    UnavailableError,
)

# Reasons of Events.
HOOK_FAILED = "HookFailed"
NAME_TAKEN = "NameTaken"
WRITE_FAILED = "WriteFailed"

_REMEMBERED_EVENTS = 16_384
# The store shows more than the cache: by then the news has come, and if not, so much later is soon enough.
_CACHE_LATE_S = 1.0
# A status of which only the messages change is not written sooner: with many parts they change with each.
WORDS_DELAY_S = 1.0


class HookReconciler:
    """The `Reconciler` of one hook, for one term."""

    def __init__(
        self,
        hook: Hook,
        caller: Caller,
        scope: Scope,
        gatherer: Gatherer,
        finalizers: Mapping[type[Object], tuple[str, ...]],
    ) -> None:
        self._hook = hook
        self._caller = caller
        self._gatherer = gatherer
        self._finalizers = finalizers
        self._events = scope.events
        self._expectations = Expectations()
        self._applier = Applier(hook, scope, gatherer, self._expectations)
        self._confirming = Confirming(hook, scope.store, gatherer)
        self._fulfilled = Fulfilled()
        self._told: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._unsaid_since: dict[Request, float] = {}  # of which messages that have changed are not written yet
        self._duration = scope.metrics.histogram(HOOK_DURATION, hook.name)
        self._calls = {outcome: scope.metrics.counter(HOOK_CALLS, hook.name, outcome) for outcome in ("ok", "error")}

    async def reconcile(self, request: Request) -> Result:
        await self._expectations.settle(request)
        watch: Object | None = self._gatherer.watches.get(request)
        if watch is None:
            self._unsaid_since.pop(request, None)
            return DONE
        finalizer = finalizer_of(self._hook)
        finalizing = watch.metadata.deletion_timestamp is not None
        if finalizing and (self._hook.finalize is None or finalizer not in watch.metadata.finalizers):
            return DONE  # nothing was asked for, or it is done and waits for others
        if self._hook.finalize is not None and not finalizing:
            watch = await self._applier.write_watch(watch, with_finalizer(watch, finalizer))
        seen = Picture(watch, self._gatherer.attachments(watch))
        response = await self._call(seen, finalizing=finalizing)
        writes = self._decide(seen, response)
        if takes_away(response, writes, finalizing=finalizing):
            again = await self._look_again(seen)
            if again is None:
                return DONE
            seen = again
            if (seen.watch.metadata.deletion_timestamp is not None) != finalizing:
                return Result(requeue_after_s=_CACHE_LATE_S)
            response = await self._call(seen, finalizing=finalizing)
            writes = self._decide(seen, response)
        for event in response.events:
            self._tell(seen.watch, event)
        try:
            words_after_s = await self._make_true(seen.watch, response, writes, finalizing=finalizing)
        except QuartermasterError as error:
            self._tell_failure(seen.watch, error)
            raise
        return Result(requeue_after_s=_sooner(words_after_s, response.resync_after_s))

    async def _look_again(self, seen: Picture) -> Picture | None:
        try:
            return await self._confirming.look_again(seen)
        except QuartermasterError as error:
            self._tell_failure(seen.watch, error)
            raise

    def _decide(self, seen: Picture, response: SyncResponse) -> Writes:
        if response.skip_reconcile:
            return Writes()
        return decide(
            self._hook,
            seen.watch,
            response,
            self._gatherer.observed(seen.watch, seen.attachments),
            finalizers=self._finalizers,
            may_create=not is_collected(seen.watch),
            fulfilled=self._fulfilled,
        )

    async def _call(self, seen: Picture, *, finalizing: bool) -> SyncResponse:
        watch = seen.watch
        request = SyncRequest(
            watch=watch,
            attachments=seen.attachments,
            now=clock.timestamp(),
            finalizing=finalizing,
            inventory=self._gatherer.inventory,
        )
        started = asyncio.get_running_loop().time()
        try:
            response = await self._caller.call(self._hook, request)
        except Exception as error:
            self._calls["error"].inc()
            if not isinstance(error, ConflictError | UnavailableError):
                self._tell(watch, HookEvent("Warning", HOOK_FAILED, f"cannot work out what to do: {error}"))
            raise
        self._calls["ok"].inc()
        self._duration.observe(asyncio.get_running_loop().time() - started)
        return response

    async def _make_true(self, watch: Object, response: SyncResponse, writes: Writes, *, finalizing: bool) -> float:
        """In how many seconds there are words to write that were not worth a write yet; 0: none."""
        watch = await self._applier.write_watch(watch, with_texts(watch, response.labels, response.annotations))
        await self._applier.apply(watch, writes)
        released = finalizing and response.finalized
        finalizer = finalizer_of(self._hook)
        if not released or watch.metadata.finalizers != (finalizer,):  # else nobody can read it afterwards
            after = with_status(watch, response.status)
            if (wait_s := self._words_wait_s(watch, after)) > 0:
                return wait_s
            watch = await self._applier.write_watch(watch, after, status=True)
        if released:
            await self._applier.write_watch(watch, without_finalizer(watch, finalizer))
        return 0.0

    def _words_wait_s(self, before: Object, after: Object) -> float:
        """How much longer a status of which only the messages change can wait for a better reason to be written."""
        if after is before or not differ_in_words(before, after):
            self._unsaid_since.pop(before.key, None)
            return 0.0
        now = asyncio.get_running_loop().time()
        wait_s = self._unsaid_since.setdefault(before.key, now) + WORDS_DELAY_S - now
        if wait_s <= 0:
            del self._unsaid_since[before.key]
        return wait_s

    def _tell_failure(self, watch: Object, error: QuartermasterError) -> None:
        """What a person has to know; what the next try settles by itself is not worth an Event."""
        if isinstance(error, ConflictError | UnavailableError | FencedError):
            return
        reason = NAME_TAKEN if isinstance(error, AlreadyExistsError) else WRITE_FAILED
        self._tell(watch, HookEvent("Warning", reason, str(error)))

    def _tell(self, watch: Object, event: HookEvent) -> None:
        """Once per change of its message."""
        about = (watch.metadata.uid, event.type, event.reason)
        if self._told.get(about) == event.message:
            return
        self._told[about] = event.message
        self._told.move_to_end(about)
        if len(self._told) > _REMEMBERED_EVENTS:
            self._told.popitem(last=False)
        self._events.record(watch, event.reason, event.message, type=event.type)


def _sooner(one_s: float, other_s: float) -> float:
    """Of two delays, of which 0 is none."""
    return min(filter(None, (one_s, other_s)), default=0.0)
