"""Tests of this directory run inside a User-Mode Linux, those of `qemu` in an emulated machine: same files, same
interpreter, another kernel.

Each is collected here and handed to the guest of its module, which runs it with its fixtures and sends the reports
back. So a test reads like any other, and `pytest tests/hostlab/test_iscsi.py -k chap` does what it says. One boot per
module; after a failure the next test gets a new guest, for what the failure has left in the kernel is nobody's.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.hostlab.guest import Guest, GuestError, user_mode_linux
from tests.hostlab.qemu.machine import emulated

INSIDE = os.environ.get("QUARTERMASTER_HOSTLAB") == "guest"
HERE = Path(__file__).parent
MACHINES = {HERE: user_mode_linux, HERE / "qemu": emulated}
TIMEOUT_S = 240  # starting a program is slow in a guest, most of all on a busy machine
EARLIER_S = 20.0  # the guest gives up before this side does, and tells where it was
BOOT = "hostlab boot"


class Lab:
    """The guest of the module whose tests are running."""

    def __init__(self, config: pytest.Config) -> None:
        worker = getattr(config, "workerinput", {}).get("workerid", "gw0")
        self._cpus = sorted(os.sched_getaffinity(0))
        self._cpu = self._cpus[int(worker.removeprefix("gw")) % len(self._cpus)]
        self._guest: Guest | None = None
        self._module = HERE
        self._failure = ""
        self._news: list[tuple[str, float]] = []  # boots that no report has told of yet

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Boot before the clock of the test's own timeout runs."""
        if item.path.parent in MACHINES:
            self._boot(item.path)
        return (yield)

    def run(self, item: pytest.Item) -> list[pytest.TestReport]:
        if self._guest is None:
            return [failed(item, self._failure)]
        marker = item.get_closest_marker("timeout")
        assert marker is not None
        try:
            answer = self._guest.run(item.nodeid, timeout_s=marker.args[0] - EARLIER_S)
        except GuestError as error:
            self.end()
            return [failed(item, str(error))]
        hook = item.config.hook
        reports = [hook.pytest_report_from_serializable(config=item.config, data=data) for data in answer["reports"]]
        if not answer["in_time"] or not reports:
            why = "it did not end in time" if not answer["in_time"] else "it ended without a report"
            reports = [failed(item, f"{why}\n{answer['log'][-8000:]}")]
        reports[0].user_properties += [(BOOT, news) for news in self._news]
        self._news.clear()
        if any(report.failed for report in reports):
            reports[-1].sections.append(("Captured kernel log", answer["kernel"][-6000:]))
            self.end()
        return reports

    def pytest_sessionfinish(self) -> None:
        self.end()

    def _boot(self, module: Path) -> None:
        if self._module == module and (self._guest is not None or self._failure):
            return
        self.end()
        self._module, self._failure = module, ""
        try:
            self._guest = Guest(MACHINES[module.parent](self._cpu))
        except Exception as error:
            self._failure = f"cannot boot the guest: {error}"
        else:
            self._news.append((module.name, round(self._guest.boot_s, 2)))

    def end(self) -> None:
        if self._guest is not None:
            self._guest.end()
            self._guest = None


class Handing:
    """Runs the tests of this directory in place of pytest itself."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if item.path.parent not in MACHINES:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._lab.run(item):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if nextitem is None or nextitem.path != item.path:
            self._lab.end()
        return True


def failed(item: pytest.Item, why: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")


def pytest_configure(config: pytest.Config) -> None:
    if not INSIDE:
        lab = Lab(config)
        config.pluginmanager.register(lab, "hostlab")
        config.pluginmanager.register(Handing(lab), "hostlab-handing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent in MACHINES:
            item.add_marker("hostlab")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    told = [value for report in reports for name, value in getattr(report, "user_properties", ()) if name == BOOT]
    if told:
        boots = ", ".join(f"{module} {seconds:.1f} s" for module, seconds in told)
        terminalreporter.write_line(f"host lab: {len(told)} boots ({boots})")
