"""Whose agent keeps a volume: makes it, lets it grow, deletes it. Any host of the pool can; one of them does.

It stays the host that made the volume, as long as that is a node that can be asked. When it goes, another one takes the
volume over as it is, and the first one, should it ever come back, is told to forget it: an agent deletes only what it
keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from quartermaster.backends.glusterfs.facts import NODE, POOL, VOLUME, BrickPlace, read_memory
from quartermaster.backends.glusterfs.pool_agent import ADOPTED_OPTION, OWNER_OPTION
from quartermaster.backends.glusterfs.reasons import AWAITED, IN_USE, NOT_KEPT, NOT_THERE, SUPERSEDED
from quartermaster.planning.cluster import ABANDON, MAINTENANCE, ClusterView, Desired, NodeView, Report, VolumeView

_Reports: TypeAlias = Sequence[tuple[NodeView, Report]]

FORGET: dict[str, Any] = {"forget": True}


def keeper_of(name: str, hosts: tuple[str, ...], view: ClusterView) -> str:
    """The host whose agent keeps the volume; one that leaves where no other can, and the one that made it where nobody
    else lives.
    """
    reports = reports_of(view, name)
    able = _not_superseded(reports, [node for node in view.nodes if _is_able(node)])
    if at_it := _at_it(reports, hosts, able):
        return at_it
    members = _members(view)
    ready = [node.host for node in able if node.healthy and _is_up(node, members)]
    near = [host for host in hosts if host in ready]
    return (near or ready or [_last_resort(name, hosts, view, members)])[0]


def _not_superseded(reports: _Reports, nodes: list[NodeView]) -> list[NodeView]:
    superseded = [node.host for node, report in reports if _is_superseded(report)]
    return [node for node in nodes if node.host not in superseded] or nodes


def _at_it(reports: _Reports, hosts: tuple[str, ...], nodes: list[NodeView]) -> str:
    """Who of these keeps the volume, or else deletes it already; "" if nobody does."""
    asked = {node.host for node in nodes}
    keeping = [node.host for node, report in reports if node.host in asked and _keeps(report)]
    deleting = [node.host for node, report in reports if node.host in asked and _deletes(report)]
    return hosts[0] if hosts[0] in keeping else next(iter(keeping or deleting), "")


def _last_resort(name: str, hosts: tuple[str, ...], view: ClusterView, members: set[str]) -> str:
    """Where nobody who stays can be asked. Nobody answers for a host that is lost: the volume would count as gone with
    it, and stay in the pool, and with it all nodes that are to leave.
    """
    living = [node for node in view.nodes if node.host and not node.lost and node.leaving != ABANDON]
    reports = reports_of(view, name)
    living = _not_superseded(reports, living)
    if at_it := _at_it(reports, hosts, living):
        return at_it
    known = [node.host for node in living if _is_member(node, members)]
    if hosts[0] in known:
        return hosts[0]
    known = [node.host for node in living if node.healthy and _is_up(node, members)] or known
    near = [host for host in hosts if host in known]
    return (near or known or list(hosts))[0]


def is_doomed(volume: VolumeView, view: ClusterView) -> bool:
    """Whether somebody has tried to delete it and only others are in the way, and nobody keeps it: what is in it is not
    wanted any more. As long as somebody uses it, or nobody has found that he does not, it is as good as any other: an
    attempt may fail before it comes to that question.
    """
    return any(report.failed_by == AWAITED for report in _endings(volume, view))


def is_forced(volume: VolumeView, view: ClusterView) -> bool:
    """Whether it is to be deleted whoever uses it."""
    return any(report.forced for report in _endings(volume, view))


def is_ending(volume: VolumeView, view: ClusterView) -> bool:
    """Whether somebody is at deleting it, be it that he has not looked yet whether it is used."""
    return bool(_endings(volume, view))


def is_being_made(volume: VolumeView, view: ClusterView) -> bool:
    """Whether it was never finished: nobody has used it, and nobody misses it. One that somebody has been given was, be
    it that nothing is known of who finished it.
    """
    if volume.kept:
        return False
    reports = [report for _, report in reports_of(view, volume.name) if not report.absent]
    begun = [one for one in reports if one.desired != FORGET and not (one.desired or {}).get("existing")]
    return bool(begun) and not any(was_finished(report) for report in reports)


def _endings(volume: VolumeView, view: ClusterView) -> list[Report]:
    reports = [report for node, report in reports_of(view, volume.name) if not node.lost]
    if volume.kept or any(_keeps(report) for report in reports):
        return []
    # Whoever was told to forget a volume has reported nothing of it since, and is asked to end no more than that.
    asked = [report for report in reports if report.absent and not report.done and report.status.result != {}]
    return [report for report in asked if not _is_in_use(report)]


def _is_in_use(report: Report) -> bool:
    return report.absent and report.failed_by == IN_USE


def volume_config(
    name: str, size: int, details: Mapping[str, Any], host: str, *, existing: bool = False
) -> dict[str, Any]:
    """What the agent on `host` is told of a volume."""
    bricks = [BrickPlace(**one) if isinstance(one, dict) else one for one in details["bricks"]]
    config = {
        "volume": name,
        "size": size,
        "owner": details["owner"],
        "layout": details["layout"],
        "bricks": [brick.name for brick in bricks],
        "here": [brick.name for brick in bricks if brick.host == host],
        "options": dict(details["options"]),
    }
    if is_by_hand(details["options"]):
        config["adopted"] = True
    return {**config, "existing": True} if existing else config


def is_by_hand(options: Mapping[str, str]) -> bool:
    """Whether somebody made the volume, by what it said of itself when it was placed or adopted."""
    return OWNER_OPTION not in options or ADOPTED_OPTION in options


def keeping_assignments(view: ClusterView) -> list[Desired]:
    """Only where a volume changes hands: all else about volumes is asked for by whoever makes and deletes them."""
    wanted: list[Desired] = []
    for volume in view.volumes:
        if not volume.details.get("bricks") or not volume.hosts:
            continue
        keeper = keeper_of(volume.name, volume.hosts, view)
        others = [(node, report) for node, report in reports_of(view, volume.name) if node.host != keeper]
        there = next((report for node, report in reports_of(view, volume.name) if node.host == keeper), None)
        if _deletes(there):
            continue
        left = any(
            report.done or report.desired == FORGET or was_finished(report) or _is_refused(report)
            for _, report in others
        )
        if not left and not _is_refused(there) and not _is_superseded(there):
            continue  # one that was never finished is finished or taken back by whoever began it
        why = f"host {keeper} keeps the volume {volume.name} now"
        if there is None or there.absent or there.desired == FORGET or _is_superseded(there):
            config = volume_config(volume.name, volume.size, volume.details, keeper, existing=True)
            if there is not None and _is_superseded(there):
                # It may have been told just that before: in the same words again it would be no later order.
                config["again"] = int((there.desired or {}).get("again", 0)) + 1
            wanted.append(Desired(keeper, VOLUME, config, volume.name, why=why))
        if there is not None and there.done and not there.absent:
            # One that was silent when it was to make the volume, and is back, is to end what it never had.
            ending = [report.absent and not _is_refused(report) for _, report in others]
            wanted += [
                Desired(node.host, VOLUME, None, volume.name, why=why) if ends else _let_go(node, report, why)
                for (node, report), ends in zip(others, ending, strict=True)
            ]
    return wanted + _left_over(view)


def _left_over(view: ClusterView) -> list[Desired]:
    """Of volumes that are gone: who took one over without making it, who was told to forget one, who made one that
    another host has deleted, who was away when another one took it over, and who was asked to delete one that is not
    his: if the pool has let him go, his own glusterd may know it for ever, and never be able to delete it.
    """
    known, former = {volume.name for volume in view.volumes}, read_memory(view.memory).former
    return [
        _let_go(node, report, f"the volume {report.instance} is gone")
        for node in view.nodes
        for report in node.reports
        if report.agent == VOLUME and report.instance not in known
        if _is_ours_to_end(report) or (_cannot_delete(report) and _uuid_of(node) in former)
    ]


def _uuid_of(node: NodeView) -> str:
    report = node.report(NODE)
    return str(((report.status.result if report is not None else None) or {}).get("uuid", ""))


def _cannot_delete(report: Report) -> bool:
    return report.absent and bool(report.failed_by)


def _is_ours_to_end(report: Report) -> bool:
    desired = report.desired or {}
    missed = was_finished(report) and report.failed_by == NOT_THERE
    ours = desired == FORGET or bool(desired.get("existing")) or missed or _is_superseded(report)
    return _is_refused(report) or (not report.absent and ours)


def _let_go(node: NodeView, report: Report, why: str) -> Desired:
    """First it forgets the volume, and only then the assignment ends: its end would else be the volume's."""
    if report.desired == FORGET and report.done:
        return Desired(node.host, VOLUME, None, report.instance, why=why)
    return Desired(node.host, VOLUME, FORGET, report.instance, why=why)


def _is_able(node: NodeView) -> bool:
    return bool(node.host) and not node.lost and node.leaving in ("", MAINTENANCE) and node.wrong is None


def _members(view: ClusterView) -> set[str]:
    """The UUIDs of the pool, by whoever has looked."""
    told = [report.status.result or {} for _, report in view.reports.get((POOL, ""), ())]
    return {uuid for result in told for uuid in result.get("peers", {})}


def _is_up(node: NodeView, members: set[str]) -> bool:
    report = node.report(NODE)
    return report is not None and report.done and _is_member(node, members)


def _is_member(node: NodeView, members: set[str]) -> bool:
    """Who is not of the pool yet, or whose glusterd ends, knows no volume, and would say of each that it is gone."""
    report = node.report(NODE)
    if report is None or report.absent:
        return False
    return not members or _uuid_of(node) in members


def _keeps(report: Report | None) -> bool:
    kept = report is not None and not report.absent and report.desired not in (None, FORGET)
    return kept and not _is_superseded(report)


def _deletes(report: Report | None) -> bool:
    """It was made or taken over there, and is to go: nobody else deletes it as long as that host can be asked."""
    return report is not None and report.absent and was_finished(report) and not _is_refused(report)


def _is_refused(report: Report | None) -> bool:
    """It was asked to delete a volume that it does not keep: who kept it was given up, and nobody knows of him."""
    return report is not None and report.absent and report.failed_by == NOT_KEPT


def _is_superseded(report: Report | None) -> bool:
    """It kept the volume once, and finds that another one was told to since: who was silent then, and is back."""
    return report is not None and report.failed_by == SUPERSEDED


def was_finished(report: Report) -> bool:
    """Also where it fails now: a host that the pool has let go knows no volume any more."""
    return bool((report.status.result or {}).get("volume"))


def was_there(report: Report) -> bool:
    """Whether it was finished, here or by the host that it was to be taken over from."""
    return was_finished(report) or bool((report.desired or {}).get("existing"))


def is_making(report: Report) -> bool:
    """Whether it was asked to make the volume, and not to take over or to end what another one has made."""
    return _keeps(report) and not (report.desired or {}).get("existing")


def reports_of(view: ClusterView, volume: str) -> _Reports:
    return view.reports.get((VOLUME, volume), ())
