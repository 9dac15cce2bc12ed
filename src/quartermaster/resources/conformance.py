"""ConformanceReport: which conformance scenarios to run against a live installation, and what came of each."""

from __future__ import annotations

from typing import Annotated

from quartermaster.resources.agility import CATEGORIES, GROUP, VERSION
from quartermaster.resources.declare import declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Object, Struct, Time


class ScenarioResult(Struct):
    name: Annotated[str, declare("The scenario.")]
    outcome: Annotated[str, declare("How it ended.", enum=("Passed", "Failed", "Skipped"))]
    seconds: Annotated[float | None, declare("How long it took.")] = None
    message: Annotated[str, declare("What went wrong, or why it was left out.")] = ""


class ConformanceReportSpec(Struct, kw_only=True):
    scenarios: Annotated[
        tuple[str, ...], declare("Which scenarios to run, in this order; all if unset.", list_type="atomic")
    ] = ()
    csi_attacher_name: Annotated[str, declare("The CSI driver that attaches the disks of the scenarios.", min_length=1)]
    storage_class_name: Annotated[str, declare("The StorageClass from which they come.", min_length=1)]
    rehearsal: Annotated[
        bool | None,
        declare(
            "Whether nodes, disks and pools are only played, by stand-ins: then scenarios may make and break them. "
            "Else they use nodes with the label conformance.dao.mayadata.io/use=true and break nothing."
        ),
    ] = None
    timeout_seconds: Annotated[int | None, declare("How long one scenario may take; 600 if unset.", minimum=1)] = None


class ConformanceReportStatus(Struct):
    phase: Annotated[str, declare("Whether it runs, and how it ended.", enum=("Running", "Passed", "Failed"))] = ""
    message: Annotated[str, declare("What matters most, as a sentence.")] = ""
    started: Annotated[Time | None, declare("When the first scenario began.")] = None
    finished: Annotated[Time | None, declare("When the last one ended.")] = None
    total: Annotated[int | None, declare("How many scenarios there are.")] = None
    passed: Annotated[int | None, declare("How many passed.")] = None
    failed: Annotated[int | None, declare("How many failed.")] = None
    observed_generation: Annotated[int | None, declare("The metadata.generation that this status is about.")] = None
    results: Annotated[tuple[ScenarioResult, ...], declare("Each scenario.", keys=("name",))] = ()


@kind(
    group=GROUP,
    version=VERSION,
    plural="conformancereports",
    short_names=("cscreport",),
    columns=(
        Column("Phase", ".status.phase", description="Whether it runs, and how it ended"),
        Column("Total", ".status.total", "integer", description="How many scenarios there are"),
        Column("Passed", ".status.passed", "integer", description="How many passed"),
        Column("Failed", ".status.failed", "integer", description="How many failed"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Message", ".status.message", wide=True, description="What matters most"),
    ),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
)
class ConformanceReport(Object):
    """A run of the conformance scenarios against a live installation, and what came of it."""

    spec: Annotated[ConformanceReportSpec, declare("What to run.")]
    status: Annotated[ConformanceReportStatus, declare("What came of it.")] = ConformanceReportStatus()
