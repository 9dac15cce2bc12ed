"""What the commands of `qm cstor conformance` do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli.cstor_running import Controlled, HooksAt, Secrets, control_hooks, serve
from quartermaster.hooks.conformance.reporting import junit, pages
from quartermaster.hooks.conformance.scenarios import SCENARIOS
from quartermaster.hooks.conformance.serving import LEASE, REPORT_HOOK, Runs
from quartermaster.resources.conformance import ConformanceReport
from quartermaster.support.tasks import TaskGroup

if TYPE_CHECKING:
    from quartermaster.cli.session import Session
    from quartermaster.hooks.service import ServiceOptions

MANAGER = "cstorpoolauto-conformance"


def show_scenarios(output: str) -> None:
    if output == "json":
        found = [{"name": one.name, "about": one.about, "rehearsal": one.breaks} for one in SCENARIOS.values()]
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    width = max(map(len, SCENARIOS))
    for one in SCENARIOS.values():
        where = " (in a rehearsal)" if one.breaks else ""
        click.echo(one.name if output == "name" else f"{one.name:<{width}}  {one.about}{where}")


async def print_junit(session: Session, name: str) -> int:
    async with session.store(reads_only=True) as store:
        report = await store.get(ConformanceReport, name, session.namespace(store))
    click.echo(junit(report), nl=False)
    return 0 if report.status.phase == "Passed" else 1


async def serve_conformance(session: Session, options: ServiceOptions, secrets: Secrets, health_listen: str) -> None:
    async with session.store(manager=MANAGER) as store, TaskGroup() as group:
        session.name_store(store)
        try:
            await serve([Runs(store, group).hook()], options, secrets, health_listen, pages(store))
        finally:
            group.cancel()


async def control_conformance(session: Session, place: HooksAt, controlled: Controlled) -> None:
    async with session.store(manager=MANAGER) as store, TaskGroup() as group:
        session.name_store(store)
        hook = REPORT_HOOK if place.url else Runs(store, group).hook()
        try:
            await control_hooks(session, store, [hook], place, controlled, lease=LEASE)
        finally:
            group.cancel()
