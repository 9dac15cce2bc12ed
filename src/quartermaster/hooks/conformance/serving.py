"""The conformance service: a hook that watches ConformanceReports, runs what they ask for, and answers how far it is.

Unlike the hooks of the core it keeps something between calls: the runs. One that was lost with its process is begun
anew at the next call, after what it left behind was removed. A report has no finalizer: it can be deleted when nobody
of the conformance is left, and its configs go with it.
"""

from __future__ import annotations

import asyncio

from quartermaster.backends.cstor.hook import NORMAL, WARNING, Hook, HookEvent, SyncRequest, SyncResponse
from quartermaster.hooks.conformance.running import FAILED, PASSED, Run
from quartermaster.resources import to_document
from quartermaster.resources.conformance import ConformanceReport
from quartermaster.stores.base import Store
from quartermaster.support.errors import UsageError
from quartermaster.support.tasks import TaskGroup

HOOK_NAME = "conformance"
LEASE = "cstorpoolauto-conformance-controller"
_LOOK_AGAIN_S = 1.0
_MOST_RUNS = 8


def _elsewhere(_: SyncRequest) -> SyncResponse:
    raise UsageError("cannot run scenarios here: the conformance service does", hint="name it with --hooks URL")


def _declaration_matters(old: ConformanceReport | None, new: ConformanceReport | None) -> bool:
    return old is None or new is None or old.metadata.generation != new.metadata.generation


# What a controller needs to know of the hook when the service that runs it is another process.
REPORT_HOOK = Hook(
    name=HOOK_NAME, watch=ConformanceReport, attachments=(), sync=_elsewhere, matters=_declaration_matters
)


class Runs:
    """The runs of this process. They end with `group`."""

    def __init__(self, store: Store, group: TaskGroup) -> None:
        self._store = store
        self._group = group
        self._runs: dict[str, tuple[Run, asyncio.Task[object]]] = {}  # by uid of the report

    def hook(self) -> Hook:
        return Hook(
            name=HOOK_NAME, watch=ConformanceReport, attachments=(), sync=self.sync, matters=_declaration_matters
        )

    def sync(self, request: SyncRequest) -> SyncResponse:
        report: ConformanceReport = request.watch
        if _has_ended(report):
            self._runs.pop(report.metadata.uid, None)
            return SyncResponse(skip_reconcile=True)
        run = self._run_of(report)
        if run is None:
            return SyncResponse(skip_reconcile=True, resync_after_s=_LOOK_AGAIN_S)
        status = to_document(ConformanceReport(metadata=report.metadata, spec=report.spec, status=run.status))["status"]
        events: tuple[HookEvent, ...] = ()
        if run.status.phase in (PASSED, FAILED):
            kind = NORMAL if run.status.phase == PASSED else WARNING
            events = (HookEvent(kind, f"Conformance{run.status.phase}", run.status.message),)
        return SyncResponse(status=status, events=events, resync_after_s=0.0 if events else _LOOK_AGAIN_S)

    def _run_of(self, report: ConformanceReport) -> Run | None:
        """The run of what the report asks for now, begun if need be; None: not yet."""
        uid = report.metadata.uid
        if (known := self._runs.get(uid)) is not None:
            run, task = known
            if run.generation == report.metadata.generation:
                return run
            task.cancel()  # the new run removes what the old one leaves
            if not task.done():
                return None
            del self._runs[uid]
        if len(self._runs) >= _MOST_RUNS and not self._forget_one():
            return None
        run = Run(self._store, report)
        self._runs[uid] = run, self._group.start(run.go(), name=f"conformance {report.metadata.name}")
        return run

    def _forget_one(self) -> bool:
        """A run that has ended and for which nobody asked any more: its report was deleted."""
        ended = next((uid for uid, (_, task) in self._runs.items() if task.done()), None)
        return self._runs.pop(ended, None) is not None if ended is not None else False


def _has_ended(report: ConformanceReport) -> bool:
    """Whether the report tells already how the run of what it asks for has ended."""
    status = report.status
    return status.phase in (PASSED, FAILED) and status.observed_generation == report.metadata.generation
