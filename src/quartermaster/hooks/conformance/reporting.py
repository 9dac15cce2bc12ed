"""The report of a run as JUnit XML, which programs that show test results read; and the page on which it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from quartermaster.hooks.conformance.running import FAILED, SKIPPED
from quartermaster.resources.conformance import ConformanceReport
from quartermaster.stores.base import Store
from quartermaster.support.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from quartermaster.hooks.service import Handler

PAGE = "/report/{namespace}/{name}.xml"


def junit(report: ConformanceReport) -> bytes:
    """One suite with a case per scenario that has ended so far, and one for a run that failed as a whole."""
    status = report.status
    outcomes = [result.outcome for result in status.results]
    broken = status.phase == FAILED and FAILED not in outcomes
    suite = ElementTree.Element(
        "testsuite",
        name=report.metadata.name,
        tests=str(len(outcomes) + broken),
        failures=str(outcomes.count(FAILED)),
        errors=str(int(broken)),
        skipped=str(outcomes.count(SKIPPED)),
        time=f"{sum(result.seconds or 0.0 for result in status.results):.3f}",
        timestamp=status.started or "",
    )
    if broken:
        case = ElementTree.SubElement(suite, "testcase", classname="cstor", name="run", time="0.000")
        ElementTree.SubElement(case, "error", message=status.message)
    for result in status.results:
        case = ElementTree.SubElement(
            suite, "testcase", classname="cstor", name=result.name, time=f"{result.seconds or 0.0:.3f}"
        )
        if result.outcome == FAILED:
            ElementTree.SubElement(case, "failure", message=result.message)
        elif result.outcome == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=result.message)
    ElementTree.indent(suite)
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)) + b"\n"


def pages(store: Store) -> Mapping[str, Handler]:
    """For the service: GET /report/<namespace>/<name>.xml."""
    from aiohttp import web

    from quartermaster.hooks.protocol import RequestRefusedError

    async def show(request: web.Request) -> web.StreamResponse:
        name, namespace = request.match_info["name"], request.match_info["namespace"]
        try:
            report = await store.get(ConformanceReport, name, namespace)
        except NotFoundError as error:
            raise RequestRefusedError(404, "NotFound", str(error)) from error
        return web.Response(body=junit(report), content_type="application/xml")

    return {PAGE: show}
