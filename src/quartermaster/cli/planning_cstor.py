"""The planner of CStorClusterConfig: the same rules as in the controller, on a view that may be partly imagined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from quartermaster.backends.cstor.decide import decide, gather, judged
from quartermaster.backends.cstor.hook import Attachments, SyncRequest
from quartermaster.backends.cstor.hooks import CONFIG_HOOK
from quartermaster.backends.cstor.report import Report, counted, refused_report, report
from quartermaster.cli.planning import Planned
from quartermaster.cli.tables import Writer
from quartermaster.resources.agility import CStorClusterConfig
from quartermaster.resources.model import Object
from quartermaster.support import clock

READS = tuple(dict.fromkeys((CStorClusterConfig, *(rule.kind for rule in CONFIG_HOOK.attachments))))
_OTHERS_SHOWN = 20


def plan(obj: CStorClusterConfig, objects: Iterable[Object], *, wide: bool) -> Planned:
    request = SyncRequest(watch=obj, attachments=Attachments(objects), now=clock.timestamp())
    gathered = gather(request)
    verdict = judged(gathered)
    if verdict.settings is None:
        found = refused_report(verdict)
    else:
        found = report(gathered, decide(gathered, verdict, request.now))
    text = "".join(f"{line}\n" for line in _lines(obj, found, wide=wide))
    return Planned(text, msgspec.to_builtins(found), refused=bool(found.problems) or not found.chosen)


def _lines(obj: CStorClusterConfig, found: Report, *, wide: bool) -> Iterator[str]:
    yield f"CStorClusterConfig {obj.key}"
    for warning in found.warnings:
        yield f"  warning: {warning}"
    if found.problems:
        yield "  cannot be planned:"
        for problem in found.problems:
            yield f"    {problem}"
        return
    groups = f"groups of {found.group_size}" if found.group_size else "one group"
    yield f"  pools: {found.least_pools} to {found.most_pools}, {found.raid_type} in {groups}"
    yield f"  disks: {found.disks_per_pool} per pool, {found.disk_capacity} each"
    yield ""
    yield from _chosen_lines(found, wide=wide)
    yield from _other_lines(found, wide=wide)
    for title, texts in (
        ("Changes", found.changes),
        ("Held back", found.held),
        ("Waiting for", found.waiting),
        ("OpenEBS would refuse", found.refused),
        ("Recommendation", found.recommendations),
    ):
        if texts:
            yield f"{title}:"
            for text in texts:
                yield f"  {text}"
            yield ""
    yield f"Capacity: {found.capacity} in {counted(len(found.chosen), 'pool')} (before what ZFS keeps for itself)"


def _chosen_lines(found: Report, *, wide: bool) -> Iterator[str]:
    if not found.chosen:
        yield "No node is chosen."
        yield ""
        return
    headers = ("NODE", "ZONE", "SLOT", "DISKS", "GROUPS", "WHY")
    rows = []
    for node in found.chosen:
        named = " | ".join(" ".join(group) for group in node.groups)
        groups = named if wide else "+".join(str(len(group)) for group in node.groups)
        rows.append((node.name, node.zone or "-", str(node.slot), str(node.disks), groups, node.why))
    yield from Writer(headers).format(rows).splitlines()
    yield ""


def _other_lines(found: Report, *, wide: bool) -> Iterator[str]:
    if not found.others:
        return
    shown = found.others if wide else found.others[:_OTHERS_SHOWN]
    yield from Writer(("NOT CHOSEN", "WHY")).format((node.name, node.why) for node in shown).splitlines()
    if len(shown) < len(found.others):
        yield f"and {len(found.others) - len(shown)} more; -o wide shows all"
    yield ""
