"""What the leader itself writes about hosts and assignments, whatever the managers decide.

A host's state in one word and its condition Ready, as its heartbeat shows them; and an assignment that was to be gone
and is, which is deleted. One name at a time from a queue, so that nothing of it holds up a refresh.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from quartermaster.backends.assigning import is_gone
from quartermaster.engine import metrics
from quartermaster.engine.cache import Cache
from quartermaster.engine.queue import WorkQueue
from quartermaster.engine.workers import DONE, Result, Workers
from quartermaster.orchestration.health import Heartbeats
from quartermaster.planning.health import LOST, READY, SILENT, HostState
from quartermaster.resources.conditions import set_condition
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import Assignment, Host, HostStatus
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import ConflictError, NotFoundError

# An absence that nobody has taken note of for so long is nobody's.
LEFT_OVER_AFTER_S = 60.0


class _Item(NamedTuple):
    kind: str
    name: str


class Marking:
    """Of one term. `host` and `assignment` at any time; `run` writes."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        hosts: Cache[Host],
        health: Heartbeats,
        assignments: Cache[Assignment],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._hosts = hosts
        self._health = health
        self._assignments = assignments
        self._queue: WorkQueue[_Item] = WorkQueue(everything=self._everything)

    def host(self, name: str) -> None:
        self._queue.add(_Item("host", name))

    def assignment(self, name: str) -> None:
        """Not at once: whoever asked for the absence reads the report, and deletes it himself."""
        self._queue.add_after(_Item("assignment", name), LEFT_OVER_AFTER_S)

    async def run(self, stopping: asyncio.Event) -> None:
        workers = Workers("marking", self._queue, self._settle, count=4, timeout_s=30.0, metrics=metrics.SILENT)
        await workers.run(stopping, drain_s=1.0)

    async def _settle(self, item: _Item) -> Result:
        key = Key(self._namespace, item.name)
        try:
            if item.kind == "host":
                await self._mark(key)
            else:
                await self._remove(key)
        except NotFoundError:
            pass
        return DONE

    async def _mark(self, key: Key) -> None:
        host = self._hosts.get(key)
        state = self._health.of(key.name)
        if host is not None and marked(host.status, state) != host.status:
            await modify(
                self._store,
                Host,
                key.name,
                key.namespace,
                lambda current: replace(current, status=marked(current.status, self._health.of(key.name))),
                status=True,
            )

    async def _remove(self, key: Key) -> None:
        assignment = self._assignments.get(key)
        if assignment is None or not is_gone(assignment):
            return
        meta = assignment.metadata
        # After a conflict somebody wants it again, or has written it: its next change comes by here.
        with suppress(ConflictError):
            await self._store.delete(Assignment, key.name, key.namespace, uid=meta.uid, revision=meta.resource_version)

    def _everything(self) -> list[_Item]:
        hosts = [_Item("host", key.name) for key in self._hosts.keys(self._namespace)]
        return hosts + [_Item("assignment", one.metadata.name) for one in self._assignments.list() if is_gone(one)]


def marked(status: HostStatus, state: HostState) -> HostStatus:
    """The status with what its heartbeat shows. For how long it has been silent is not said: that would never rest."""
    if state.healthy:
        word, reason, message = READY, "Heartbeat", "its agent reports"
    elif state.lost:
        word, reason, message = LOST, "NoHeartbeat", "its agent has been silent for so long that its data may move"
    else:
        word, reason, message = SILENT, "NoHeartbeat", "its agent does not report"
    conditions = set_condition(status.conditions, type=READY, status=state.healthy, reason=reason, message=message)
    return replace(status, conditions=conditions, state=word)
