"""A run of scenarios, one after the other; how far it is becomes the status of a ConformanceReport."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from quartermaster.hooks.conformance.scenarios import SCENARIOS, Scenario, clean_up
from quartermaster.hooks.conformance.site import ScenarioSkippedError, Site
from quartermaster.resources.agility import ExternalProvisioner
from quartermaster.resources.conformance import ConformanceReport, ConformanceReportStatus, ScenarioResult
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.deadlines import within
from quartermaster.support.errors import NotFoundError, QuartermasterError, UsageError
from quartermaster.support.log import logger

PASSED, FAILED, SKIPPED, RUNNING = "Passed", "Failed", "Skipped", "Running"
DEFAULT_TIMEOUT_S = 600
_CLEAN_UP_S = 120.0
_GRACE_S = 10.0  # for who waits to say what for
_LONGEST_NAME = 50  # of a config; names of nodes and labels are longer by a few letters

_log = logger("hooks.conformance")


def chosen(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Scenarios by name, all without one; UsageError lists what there is."""
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise UsageError(
            f"cannot run {', '.join(unknown)}: there is no such scenario", hint=f"there are {', '.join(SCENARIOS)}"
        )
    return tuple(SCENARIOS[name] for name in names) if names else tuple(SCENARIOS.values())


class Run:
    """One run for one ConformanceReport. `status` can be read at any time."""

    def __init__(self, store: Store, report: ConformanceReport) -> None:
        self._store = store
        self._report = report
        self.generation = report.metadata.generation
        self.status = ConformanceReportStatus(
            phase=RUNNING, started=clock.timestamp(), observed_generation=report.metadata.generation
        )

    async def go(self) -> ConformanceReportStatus:
        try:
            scenarios = chosen(self._report.spec.scenarios)
        except UsageError as error:
            self._update(phase=FAILED, message=str(error), finished=clock.timestamp())
            return self.status
        self._update(total=len(scenarios), passed=0, failed=0)
        for scenario in scenarios:
            if not await self._is_wanted():
                self._update(phase=FAILED, message="the report was deleted", finished=clock.timestamp())
                return self.status
            self._update(message=f"{scenario.name}: {scenario.about}")
            result = await self._drive(scenario)
            results = (*self.status.results, result)
            count = {outcome: sum(one.outcome == outcome for one in results) for outcome in (PASSED, FAILED)}
            self._update(results=results, passed=count[PASSED], failed=count[FAILED])
        self._end()
        return self.status

    def _end(self) -> None:
        results = self.status.results
        failed = [one.name for one in results if one.outcome == FAILED]
        skipped = sum(one.outcome == SKIPPED for one in results)
        message = f"{self.status.passed} of {len(results)} passed" + (f", {skipped} left out" if skipped else "")
        if failed:
            message += f"; failed: {', '.join(failed)}"
        elif not self.status.passed:
            message += "; what was not looked at has not passed: the results say why"
        passed = not failed and bool(self.status.passed)
        self._update(phase=PASSED if passed else FAILED, message=message, finished=clock.timestamp())

    async def _is_wanted(self) -> bool:
        """Whoever deletes the report wants an end of it. A store that does not answer says nothing of that."""
        meta = self._report.metadata
        try:
            found = await self._store.get(ConformanceReport, meta.name, meta.namespace)
        except NotFoundError:
            return False
        except QuartermasterError:
            return True
        return found.metadata.uid == meta.uid

    async def _drive(self, scenario: Scenario) -> ScenarioResult:
        loop = asyncio.get_running_loop()
        spec, started = self._report.spec, loop.time()
        if scenario.breaks and not spec.rehearsal:
            why = "it breaks or plays parts of the cluster, which is done in a rehearsal only (spec.rehearsal)"
            return ScenarioResult(name=scenario.name, outcome=SKIPPED, message=why)
        site = Site(
            self._store,
            f"{self._report.metadata.name}-{scenario.name}"[:_LONGEST_NAME],
            namespace=self._report.metadata.namespace,
            provisioner=ExternalProvisioner(
                csi_attacher_name=spec.csi_attacher_name, storage_class_name=spec.storage_class_name
            ),
            timeout_s=spec.timeout_seconds or DEFAULT_TIMEOUT_S,
            rehearsal=bool(spec.rehearsal),
            owner=self._report,
        )
        outcome, message = await _attempt(scenario, site)
        seconds = round(loop.time() - started, 3)
        return ScenarioResult(name=scenario.name, outcome=outcome, seconds=seconds, message=message)

    def _update(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)


async def _attempt(scenario: Scenario, site: Site) -> tuple[str, str]:
    timeout_s = site.timeout_s
    try:
        site.allow(_CLEAN_UP_S)
        await clean_up(site)  # of an earlier run that was cut off
        site.allow(timeout_s)
        async with within(timeout_s + _GRACE_S):
            await scenario.drive(site)
        outcome, message = PASSED, ""
    except ScenarioSkippedError as error:
        outcome, message = SKIPPED, str(error)
    except TimeoutError:
        outcome, message = FAILED, f"it did not end within {timeout_s:g} s"
    except QuartermasterError as error:
        outcome, message = FAILED, str(error)
    except Exception as error:  # a mistake of a scenario fails that scenario, not the service
        _log.exception("scenario failed", scenario=scenario.name)
        outcome, message = FAILED, f"{type(error).__name__}: {error}"
    try:
        site.allow(_CLEAN_UP_S)
        async with within(_CLEAN_UP_S + _GRACE_S):
            await clean_up(site)
    except (QuartermasterError, TimeoutError) as error:
        left = f"what it made could not be removed: {error or 'no end of it in time'}"
        return FAILED, f"{message}; and {left}" if message else left
    return outcome, message
