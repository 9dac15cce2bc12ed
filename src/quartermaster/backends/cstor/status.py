"""What the status of a CStorClusterConfig says: one phase, one sentence, numbers, and a condition for every state.

Conditions that tell of something good are always there. Those that tell of trouble come with it, and stay as "False"
when it is over, so that one can see that it was there. Each change of a condition is an Event as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from quartermaster.backends.cstor import reasons
from quartermaster.backends.cstor.decide import Decision, Gathered, ground_for
from quartermaster.backends.cstor.hook import NORMAL, WARNING, Document, HookEvent
from quartermaster.backends.cstor.names import REPLACE_ANNOTATION
from quartermaster.backends.cstor.plan import Held, refusal
from quartermaster.backends.cstor.settings import Caution, Verdict
from quartermaster.backends.cstor.view import DATA, Pool
from quartermaster.resources.agility import CStorClusterConfigStatus, PoolCounts, Storage
from quartermaster.resources.conditions import find_condition, set_condition
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Condition, Object
from quartermaster.resources.openebs import STRIPE
from quartermaster.resources.quantity import of_bytes

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()

# Trouble: the condition is bad when it is true.
TROUBLES = (
    reasons.IS_DEGRADED,
    reasons.NODE_CHANGE_HELD,
    reasons.DISK_LOST,
    reasons.EXPANDING,
    reasons.REPLACEMENT_OFFERED,
    reasons.BEYOND_OPENEBS,
    reasons.WARNED,
    reasons.DELETION_BLOCKED,
)
# A deletion cannot be taken back, so its trouble ends with it.
_PASSING = tuple(trouble for trouble in TROUBLES if trouble != reasons.DELETION_BLOCKED)
# Of these nobody needs to be warned.
_HARMLESS = (reasons.REPLACEMENT_OFFERED, reasons.BEYOND_OPENEBS)
_HARMLESS_REASONS = (reasons.THRESHOLD_PASSED, reasons.REPLACING, reasons.OTHER_CHANGE_IN_FLIGHT)
# The ordinary way of things: a status says so, and nobody needs an Event of it.
_ON_THE_WAY = (reasons.DISKS_PENDING, reasons.NONE_YET, reasons.POOL_CLUSTER_PENDING, reasons.NOTHING_HELD)
# A cluster with one of these will not come right by itself.
_STUCK = (
    reasons.GROUP_LOST,
    reasons.STRIPE_LOST,
    reasons.DEVICE_OBJECT_GONE,
    reasons.NO_REPLACEMENT,
)
# What a Storage waits for is said of the whole cluster too, where waiting does not help.
_DECLARED_WRONG = (reasons.CLASS_MISSING, reasons.NOT_A_CSI_VOLUME, reasons.DEVICE_AMBIGUOUS)
_SHOWN = 5


class Finding(msgspec.Struct, frozen=True):
    """A condition as it should be now."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def document_of(status: msgspec.Struct) -> Document:
    document: Document = _DECODER.decode(_ENCODER.encode(status))
    return document


def merged_conditions(
    old: tuple[Condition, ...], findings: Iterable[Finding], *, generation: int, now: str, over: Sequence[str] = ()
) -> tuple[Condition, ...]:
    """The conditions with the findings in them; of the types in `over` those not found any more become False."""
    conditions = old
    seen = set()
    for finding in findings:
        seen.add(finding.type)
        conditions = set_condition(
            conditions,
            type=finding.type,
            status=finding.holds,
            reason=finding.reason,
            message=finding.message,
            generation=generation,
            now=now,
        )
    for type_ in over:
        known = find_condition(conditions, type_)
        if type_ not in seen and known is not None:
            conditions = set_condition(
                conditions, type=type_, status=False, reason=reasons.NOTHING_HELD, generation=generation, now=now
            )
    return conditions


def events_of(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> Iterator[HookEvent]:
    """One for each condition that changed what it says, except on the ordinary way."""
    for condition in new:
        if condition.reason in _ON_THE_WAY:
            continue
        before = find_condition(old, condition.type)
        if before is not None and (before.status, before.reason) == (condition.status, condition.reason):
            continue
        if before is None and condition.status == "False" and condition.type in TROUBLES:
            continue
        trouble = condition.type in TROUBLES
        harmless = condition.type in _HARMLESS or condition.reason in _HARMLESS_REASONS
        bad = not harmless and (condition.status == "True") is trouble
        message = condition.message or f"{condition.type} is {condition.status}"
        yield HookEvent(WARNING if bad else NORMAL, condition.reason, message)


def invalid_findings(verdict: Verdict) -> Iterator[Finding]:
    yield Finding(reasons.VALID, False, reasons.SPEC_INVALID, listed(map(str, verdict.problems)))
    yield from _warned(verdict.warnings)


def foreign_findings(foreign: Iterable[Object]) -> Iterator[Finding]:
    yield Finding(reasons.VALID, True, reasons.AS_DECLARED)
    for obj in foreign:
        kind = kind_of(obj).kind
        plan = kind == "CStorClusterPlan"
        yield Finding(
            reasons.PLANNED if plan else reasons.POOL_CLUSTER_APPLIED,
            False,
            reasons.PLAN_FOREIGN if plan else reasons.POOL_CLUSTER_FOREIGN,
            f"{kind} {obj.key} bears the uid of another CStorClusterConfig; remove that annotation to have it adopted",
        )


def no_nodes_findings() -> Iterator[Finding]:
    yield Finding(reasons.VALID, True, reasons.AS_DECLARED)
    yield Finding(reasons.PLANNED, False, reasons.NO_CANDIDATES, "no node is to be seen: everything stays as it is")


def findings_of(gathered: Gathered, decision: Decision) -> Iterator[Finding]:
    """All conditions, in the order of the chain."""
    yield Finding(reasons.VALID, True, reasons.AS_DECLARED)
    yield from _warned(decision.verdict.warnings)
    yield _planned(gathered, decision)
    yield _storage_ready(gathered, decision)
    yield _applied(gathered, decision)
    yield _healthy(gathered)
    if (missing := decision.choice.missing) > 0:
        want, got = decision.settings.least_pools, decision.settings.least_pools - missing
        message = f"{max(got, 0)} of {want} pools have a node; still to be found: {decision.choice.missing}"
        yield Finding(reasons.IS_DEGRADED, True, reasons.MISSING_POOLS, message)
    yield from _first(reasons.NODE_CHANGE_HELD, decision.choice.held)
    yield from _first(reasons.DISK_LOST, decision.diagnosis.findings)
    yield from _first(reasons.EXPANDING, decision.growth.findings)
    yield from _offers(decision)
    yield from _limits(decision)


def _warned(warnings: Sequence[Caution]) -> Iterator[Finding]:
    if warnings:
        yield Finding(reasons.WARNED, True, warnings[0].reason, listed(map(str, warnings)))


def _planned(gathered: Gathered, decision: Decision) -> Finding:
    nodes = decision.nodes
    if nodes:
        names = ", ".join(node.name for node in nodes[:_SHOWN]) + (" …" if len(nodes) > _SHOWN else "")
        return Finding(reasons.PLANNED, True, reasons.NODES_CHOSEN, f"{len(nodes)} pools, on {names}")
    allowed = len(gathered.inventory.allowed(decision.settings.terms))
    if not gathered.inventory.nodes:
        message = "the cluster has no nodes"
    elif not allowed:
        message = (
            f"none of {len(gathered.inventory.nodes)} nodes fits spec.allowedNodes: label one, or change the terms"
        )
    elif decision.settings.least_pools == 0:
        message = "minPoolCount is 0"
    else:
        message = f"none of {allowed} allowed nodes can be chosen: {_refusals(gathered, decision)}"
    return Finding(reasons.PLANNED, False, reasons.NO_CANDIDATES, message)


def _refusals(gathered: Gathered, decision: Decision) -> str:
    """What is in the way of the allowed nodes, each cause once, with some of the nodes that it keeps away."""
    ground = ground_for(gathered, decision.settings, 0, ())
    names: dict[str, list[str]] = {}
    for name in sorted(gathered.inventory.allowed(decision.settings.terms)):
        why = refusal(gathered.inventory.nodes[name], ground) or "another change has to end first"
        names.setdefault(why, []).append(name)
    return listed(
        f"{why} ({', '.join(found[:_SHOWN])}{' …' if len(found) > _SHOWN else ''})" for why, found in names.items()
    )


def _storage_ready(gathered: Gathered, decision: Decision) -> Finding:
    disks = [disk for slot in decision.cluster.slots for disk in slot.disks]
    ready = sum(1 for disk in disks if disk.ready)
    wanted = sum(
        max(len(slot.of_role(DATA)), slot.node.disks or 0) + len(slot.disks) - len(slot.of_role(DATA))
        for slot in decision.cluster.slots
    )
    if wanted and ready >= wanted:
        return Finding(
            reasons.STORAGE_READY, True, reasons.DISKS_ACTIVE, f"all {wanted} disks are active on their nodes"
        )
    message = f"{ready} of {wanted} disks are active on their nodes" if wanted else "no disk is planned yet"
    causes = {storage.status.message for storage in gathered.storages if _is_declared_wrong(storage)}
    message = listed([message, *sorted(causes)])
    return Finding(reasons.STORAGE_READY, False, reasons.DISKS_PENDING, message)


def _is_declared_wrong(storage: Storage) -> bool:
    found = find_condition(storage.status.conditions, reasons.IS_READY)
    return found is not None and found.reason in _DECLARED_WRONG


def _applied(gathered: Gathered, decision: Decision) -> Finding:
    if decision.broken:
        message = "OpenEBS would refuse the change: " + listed(map(str, decision.broken))
        return Finding(reasons.POOL_CLUSTER_APPLIED, False, reasons.CONTRACT_BROKEN, message)
    if not decision.pools:
        waiting = listed(decision.formation.waiting) or "nothing is planned"
        return Finding(reasons.POOL_CLUSTER_APPLIED, False, reasons.DISKS_PENDING, waiting)
    if gathered.pool_cluster is None or decision.pools != gathered.pool_cluster.spec.pools:
        return Finding(reasons.POOL_CLUSTER_APPLIED, False, reasons.POOL_CLUSTER_PENDING, "it is being written")
    if decision.formation.waiting:
        return Finding(
            reasons.POOL_CLUSTER_APPLIED, False, reasons.POOL_CLUSTER_PENDING, listed(decision.formation.waiting)
        )
    return Finding(reasons.POOL_CLUSTER_APPLIED, True, reasons.APPLIED, f"{len(decision.pools)} pools as planned")


def _healthy(gathered: Gathered) -> Finding:
    if not gathered.pools:
        return Finding(reasons.POOLS_HEALTHY, False, reasons.NONE_YET, "there is no pool yet")
    sick = [pool for pool in gathered.pools if not pool.online]
    if not sick:
        return Finding(reasons.POOLS_HEALTHY, True, reasons.ALL_ONLINE, f"all {len(gathered.pools)} pools are online")
    phases = (
        f"{pool.host} {pool.instance.status.phase or 'of no phase' if pool.instance is not None else 'not made yet'}"
        for pool in sick
    )
    # Of pools that OpenEBS is making nobody needs to be warned.
    reason = reasons.NONE_YET if all(map(_is_fresh, sick)) else reasons.NOT_ONLINE
    return Finding(reasons.POOLS_HEALTHY, False, reason, "not online: " + listed(phases))


def _first(type_: str, held: Sequence[Held]) -> Iterator[Finding]:
    """One condition for several things of a sort: the gravest gives the reason, the message has all."""
    if held:
        gravest = next((h for h in held if h.reason in _STUCK), held[0])
        messages = dict.fromkeys([gravest.message, *(h.message for h in held)])
        yield Finding(type_, True, gravest.reason, listed(messages))


def _offers(decision: Decision) -> Iterator[Finding]:
    """Disks that are smaller than what is declared now: OpenEBS does not grow a pool when its disks grow."""
    least = decision.settings.least_bytes
    offered: list[str] = []
    stuck: list[str] = []
    for slot in decision.cluster.slots:
        for disk in slot.of_role(DATA):
            if 0 < disk.bytes < least:
                in_stripe = slot.pool is not None and slot.pool.raid_type == STRIPE
                (offered if disk.storage and not in_stripe else stuck).append(disk.storage or disk.device)
    smaller = f"smaller than minCapacity {decision.settings.capacity}: "
    said = []
    if offered:
        said.append(
            f"{smaller}{listed(offered)}; annotate a Storage with {REPLACE_ANNOTATION}=true to have its disk replaced, "
            "one of a group at a time"
        )
    if stuck:
        said.append(f"{smaller}{listed(stuck)}; disks of a stripe, and those that existed already, stay as they are")
    if said:
        yield Finding(reasons.REPLACEMENT_OFFERED, bool(offered), reasons.DISKS_SMALLER, ". ".join(said))


def _limits(decision: Decision) -> Iterator[Finding]:
    beyond = []
    if decision.settings.read_cache is not None:
        beyond.append("read caches are attached to their nodes, but a CStorPoolCluster has no place for them")
    if decision.settings.spare:
        beyond.append("spares are kept by this operator and take the place of a lost disk; OpenEBS does not know them")
    if beyond:
        reason = reasons.READ_CACHE_UNUSED if decision.settings.read_cache is not None else reasons.SPARE_HELD
        yield Finding(reasons.BEYOND_OPENEBS, True, reason, "; ".join(beyond))


def phase_of(gathered: Gathered, decision: Decision) -> str:
    if not decision.nodes:
        return reasons.WAITING
    if gathered.pool_cluster is None:
        return reasons.PROVISIONING
    grave = [h.reason for h in (*decision.choice.held, *decision.diagnosis.findings) if h.reason in _STUCK]
    grave += [h.reason for h in decision.choice.held if h.reason in (reasons.NODE_LOST, reasons.NODE_NOT_ALLOWED)]
    if decision.choice.missing or grave or decision.broken:
        return reasons.DEGRADED
    if decision.formation.waiting or decision.pools != gathered.pool_cluster.spec.pools or _changes(decision):
        return reasons.UPDATING
    if all(pool.online for pool in gathered.pools):
        return reasons.READY
    return reasons.CREATING if all(_is_fresh(pool) for pool in gathered.pools if not pool.online) else reasons.DEGRADED


def _is_fresh(pool: Pool) -> bool:
    return pool.instance is None or pool.instance.status.phase in ("", "Init", "Pending")


def _changes(decision: Decision) -> bool:
    return bool(decision.choice.changes or decision.growth.node is not None or decision.diagnosis.replacements)


def sentence_of(findings: Sequence[Finding], ready: int, wanted: int) -> str:
    """The first thing that is not as it should be, else how well it is."""
    for finding in findings:
        if finding.type in TROUBLES:
            if finding.holds and finding.type not in (*_HARMLESS, reasons.WARNED):
                return finding.message
        elif not finding.holds:
            return finding.message
    return f"{ready} of {wanted} pools are online"


def status_of(gathered: Gathered, decision: Decision, now: str) -> CStorClusterConfigStatus:
    findings = list(findings_of(gathered, decision))
    old = gathered.config.status
    generation = gathered.config.metadata.generation
    ready = sum(1 for pool in gathered.pools if pool.online)
    total, used = (sum(getattr(pool, name) for pool in gathered.pools) for name in ("total_bytes", "used_bytes"))
    return CStorClusterConfigStatus(
        phase=phase_of(gathered, decision),
        message=sentence_of(findings, ready, len(decision.nodes)),
        pools=PoolCounts(wanted=max(len(decision.nodes), decision.settings.least_pools), ready=ready),
        capacity=of_bytes(total) if total else None,
        used_capacity=of_bytes(used) if total else None,
        conditions=merged_conditions(old.conditions, findings, generation=generation, now=now, over=_PASSING),
        observed_generation=generation or None,
        effective=decision.verdict.effective,
        missing_devices=decision.diagnosis.missing,
    )


def listed(texts: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    found = list(texts)
    rest = len(found) - _SHOWN
    return "; ".join(found[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
