"""What a CStorClusterConfig means: its mistakes, in the order of the specification, or every value that holds.

Nothing is written back into the spec. What was worked out goes to `status.effective`, in the form of a spec.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from quartermaster.backends.cstor.groups import (
    DEFAULT_DISK_COUNT,
    group_size,
    is_legal_size,
    legal_sizes,
    nearest_counts,
)
from quartermaster.backends.cstor.reasons import OLD_SPELLING, THRESHOLD_TOO_HIGH
from quartermaster.resources.agility import (
    RAID_TYPES,
    AllowedNodes,
    CacheConfig,
    CStorClusterConfigSpec,
    DiskConfig,
    ExpansionThreshold,
    ExternalProvisioner,
    LocalDisks,
    NodeSelectorTerm,
    PoolConfig,
    PoolExpansion,
)
from quartermaster.resources.openebs import READ_ONLY_LIMIT_PERCENT, STRIPE
from quartermaster.resources.quantity import Amount
from quartermaster.support.errors import Problem

DEFAULT_POOLS = 3
HEADROOM = 2
DEFAULT_CAPACITY = "100Gi"
DEFAULT_THRESHOLD = 0.80
DEFAULT_LOST_AFTER_S = 300
DEFAULT_NODE_CHANGES = 1

_PROVISIONER = "spec.diskConfig.externalProvisioner"


class Surroundings(msgspec.Struct, frozen=True):
    """What the defaults depend on besides the spec."""

    allowed_nodes: int
    cluster_nodes: int
    raid_type: str = ""  # of the pool cluster that exists, "" if none does
    group_size: int = 0
    made_disks: bool = False  # disks were made for this cluster
    settled_pools: int = 0  # the least number of pools by which it was planned before, 0 if it was not


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every value that holds."""

    least_pools: int
    most_pools: int
    terms: tuple[NodeSelectorTerm, ...]
    raid_type: str
    group_size: int  # 0 for a stripe
    disks: int
    declared_disks: int | None  # the same where it was declared and not worked out
    capacity: str
    least_bytes: int
    provisioner: ExternalProvisioner | None
    local: LocalDisks | None
    write_cache: CacheConfig | None
    read_cache: CacheConfig | None
    spare: bool
    expands: bool
    threshold: float
    most_groups: int | None
    node_changes: int
    lost_after_s: int
    pool: PoolConfig

    @property
    def read_only_part(self) -> float:
        return (self.pool.read_only_percent or READ_ONLY_LIMIT_PERCENT) / 100


class Caution(msgspec.Struct, frozen=True):
    """Something that holds and is better changed, and of which sort it is."""

    reason: str
    problem: Problem

    def __str__(self) -> str:
        return str(self.problem)


class Verdict(msgspec.Struct, frozen=True):
    """`settings` is None where there are problems; warnings stop nothing."""

    settings: Settings | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Caution, ...] = ()  # the gravest first
    effective: CStorClusterConfigSpec | None = None


def terms_of(spec: CStorClusterConfigSpec) -> tuple[NodeSelectorTerm, ...]:
    """Under its name or under the old one."""
    allowed = spec.allowed_nodes or AllowedNodes()
    return allowed.node_selector_terms or allowed.selector_terms


def provisioner_of(disks: DiskConfig) -> ExternalProvisioner | None:
    return disks.external_provisioner or disks.external


def judge(spec: CStorClusterConfigSpec, around: Surroundings) -> Verdict:
    """All mistakes, or all values."""
    disks, pool = spec.disk_config or DiskConfig(), spec.pool_config or PoolConfig()
    raid_type = pool.raid_type or around.raid_type or STRIPE
    problems = [
        *_source_problems(disks, around),
        *_count_problems(spec),
        *_raid_problems(disks, pool, raid_type, around),
        *_capacity_problems(disks, pool),
        *_expansion_problems(pool),
    ]
    if problems:
        return Verdict(None, tuple(problems), tuple(_hints(spec)))
    settings = _settings(spec, disks, pool, raid_type, around)
    warnings = (*_threshold_warnings(settings), *_hints(spec))
    return Verdict(settings, (), warnings, _effective(settings))


def _source_problems(disks: DiskConfig, around: Surroundings) -> Iterator[Problem]:
    provisioner = provisioner_of(disks)
    if provisioner is not None and disks.local is not None:
        yield Problem("spec.diskConfig", "externalProvisioner and local exclude each other", "keep one of them")
    if disks.local is not None and around.made_disks:
        yield Problem(
            "spec.diskConfig.local",
            "cannot take the place of externalProvisioner: the pools are on disks that were made",
            "make another cluster and move the volumes",
        )
    if provisioner is None and disks.local is None:
        yield Problem(
            "spec.diskConfig",
            "says neither where disks come from nor which to use",
            "give externalProvisioner to make new ones, or local for those that exist",
        )
    if provisioner is not None:
        for name, value in (
            ("csiAttacherName", provisioner.csi_attacher_name),
            ("storageClassName", provisioner.storage_class_name),
        ):
            if not value:
                yield Problem(f"{_PROVISIONER}.{name}", "is missing", "the provisioner needs both names")
    if disks.external_provisioner is not None and disks.external is not None:
        yield Problem("spec.diskConfig.external", "is given beside externalProvisioner", "remove external")


def _count_problems(spec: CStorClusterConfigSpec) -> Iterator[Problem]:
    least, most = spec.min_pool_count, spec.max_pool_count
    if least is not None and least < 0:
        yield Problem("spec.minPoolCount", f"must not be negative, is {least}")
        return
    if most is not None and most < 0:
        yield Problem("spec.maxPoolCount", f"must not be negative, is {most}")
    elif most is not None and least is not None and least > most:
        yield Problem("spec.minPoolCount", f"{least} is more than maxPoolCount {most}", "raise maxPoolCount")
    allowed = spec.allowed_nodes
    if allowed is not None and allowed.node_selector_terms and allowed.selector_terms:
        yield Problem("spec.allowedNodes.selectorTerms", "is given beside nodeSelectorTerms", "remove selectorTerms")


def _raid_problems(disks: DiskConfig, pool: PoolConfig, raid_type: str, around: Surroundings) -> Iterator[Problem]:
    if raid_type not in RAID_TYPES:
        yield Problem("spec.poolConfig.raidType", f"{raid_type} is none of {', '.join(RAID_TYPES)}")
        return
    if around.raid_type and raid_type != around.raid_type:
        yield Problem(
            "spec.poolConfig.raidType",
            f"cannot change from {around.raid_type} to {raid_type}: the pools exist",
            "OpenEBS cannot change the type of a pool; make another cluster and move the volumes",
        )
        return
    if raid_type == STRIPE and pool.group_size is not None:
        yield Problem("spec.poolConfig.groupSize", "does not go with stripe, which is one group", "remove it")
        return
    size = group_size(raid_type, pool.group_size or around.group_size)
    if size and not is_legal_size(raid_type, size):
        yield Problem(
            "spec.poolConfig.groupSize", f"a {raid_type} group cannot have {size} disks", legal_sizes(raid_type)
        )
        return
    if size and around.group_size and size != around.group_size:
        yield Problem("spec.poolConfig.groupSize", f"cannot change from {around.group_size} to {size}: the pools exist")
        return
    count = disks.min_count
    if count is None:
        count = _default_count(raid_type, size)
    if count < 1:
        yield Problem("spec.diskConfig.minCount", f"must be at least 1, is {count}")
    elif size and count % size:
        legal = " or ".join(map(str, nearest_counts(size, count)))
        yield Problem(
            "spec.diskConfig.minCount", f"{count} disks cannot be cut into {raid_type} groups of {size}", f"use {legal}"
        )


def _default_count(raid_type: str, size: int) -> int:
    """The specification's number, or one whole group where groups are larger."""
    count = DEFAULT_DISK_COUNT[raid_type]
    return count if not size or count % size == 0 else size


def _capacity_problems(disks: DiskConfig, pool: PoolConfig) -> Iterator[Problem]:
    given = [("spec.diskConfig.minCapacity", disks.min_capacity)]
    for name, cache in (("writeCache", pool.write_cache), ("readCache", pool.read_cache)):
        if cache is None:
            continue
        given.append((f"spec.poolConfig.{name}.capacity", cache.capacity))
        if not cache.csi_attacher_name or not cache.storage_class_name:
            yield Problem(f"spec.poolConfig.{name}", "needs csiAttacherName and storageClassName")
        if cache.count is not None and cache.count < 1:
            yield Problem(f"spec.poolConfig.{name}.count", f"must be at least 1, is {cache.count}")
    for path, quantity in given:
        if quantity is not None and Amount.of(quantity).value <= 0:
            yield Problem(path, f"must be more than 0, is {quantity}", "for example 100Gi")


def _expansion_problems(pool: PoolConfig) -> Iterator[Problem]:
    expansion = pool.pool_expansion
    if expansion is None:
        return
    if expansion.threshold is not None and expansion.capacity_threshold is not None:
        yield Problem(
            "spec.poolConfig.poolExpansion.capacityThreshold", "is given beside threshold", "remove capacityThreshold"
        )
    part = _threshold(expansion)
    if not 0 < part <= 1:
        yield Problem(
            "spec.poolConfig.poolExpansion.threshold.used-capacity", f"must be more than 0 and at most 1, is {part}"
        )


def _threshold(expansion: PoolExpansion | None) -> float:
    given = expansion and (expansion.threshold or expansion.capacity_threshold)
    return DEFAULT_THRESHOLD if not given or given.used_capacity is None else given.used_capacity


def _settings(
    spec: CStorClusterConfigSpec, disks: DiskConfig, pool: PoolConfig, raid_type: str, around: Surroundings
) -> Settings:
    size = group_size(raid_type, pool.group_size or around.group_size)
    default = min(DEFAULT_POOLS, around.allowed_nodes, around.cluster_nodes)
    # Nodes that are lost later do not lower it: what they held is missed then.
    default = max(default, min(DEFAULT_POOLS, around.settled_pools))
    most = spec.max_pool_count
    # The number of nodes is nobody's mistake, so it does not make maxPoolCount one.
    default = default if most is None else min(default, most)
    least = default if spec.min_pool_count is None else spec.min_pool_count
    capacity = str(disks.min_capacity if disks.min_capacity is not None else DEFAULT_CAPACITY)
    expansion = pool.pool_expansion or PoolExpansion()
    return Settings(
        least_pools=least,
        most_pools=least + HEADROOM if most is None else most,
        terms=terms_of(spec),
        raid_type=raid_type,
        group_size=size,
        disks=disks.min_count or _default_count(raid_type, size),
        declared_disks=disks.min_count,
        capacity=capacity,
        least_bytes=Amount.of(capacity).bytes,
        provisioner=provisioner_of(disks),
        local=disks.local,
        write_cache=_cache(pool.write_cache, capacity),
        read_cache=_cache(pool.read_cache, capacity),
        spare=bool(pool.spare),
        expands=not expansion.disable,
        threshold=_threshold(expansion),
        most_groups=expansion.max_groups,
        node_changes=spec.max_node_changes or DEFAULT_NODE_CHANGES,
        lost_after_s=DEFAULT_LOST_AFTER_S if disks.lost_after_seconds is None else disks.lost_after_seconds,
        pool=pool,
    )


def _cache(cache: CacheConfig | None, capacity: str) -> CacheConfig | None:
    if cache is None:
        return None
    return msgspec.structs.replace(cache, count=cache.count or 1, capacity=cache.capacity or capacity)


def _effective(settings: Settings) -> CStorClusterConfigSpec:
    return CStorClusterConfigSpec(
        min_pool_count=settings.least_pools,
        max_pool_count=settings.most_pools,
        allowed_nodes=AllowedNodes(node_selector_terms=settings.terms) if settings.terms else None,
        disk_config=DiskConfig(
            min_count=settings.disks,
            min_capacity=settings.capacity,
            external_provisioner=settings.provisioner,
            local=settings.local,
            lost_after_seconds=settings.lost_after_s,
        ),
        pool_config=msgspec.structs.replace(
            settings.pool,
            write_cache=settings.write_cache,
            read_cache=settings.read_cache,
            spare=settings.spare,
            raid_type=settings.raid_type,
            group_size=settings.group_size or None,
            detect_caches=settings.pool.detect_caches is not False,
            pool_expansion=PoolExpansion(
                disable=not settings.expands,
                threshold=ExpansionThreshold(used_capacity=settings.threshold),
                max_groups=settings.most_groups,
            ),
        ),
        max_node_changes=settings.node_changes,
    )


def _hints(spec: CStorClusterConfigSpec) -> Iterator[Caution]:
    if spec.disk_config is not None and spec.disk_config.external is not None:
        yield _old_spelling("spec.diskConfig.external", "externalProvisioner")
    if spec.allowed_nodes is not None and spec.allowed_nodes.selector_terms:
        yield _old_spelling("spec.allowedNodes.selectorTerms", "nodeSelectorTerms")
    expansion = spec.pool_config.pool_expansion if spec.pool_config is not None else None
    if expansion is not None and expansion.capacity_threshold is not None:
        yield _old_spelling("spec.poolConfig.poolExpansion.capacityThreshold", "threshold")


def _old_spelling(path: str, name: str) -> Caution:
    return Caution(OLD_SPELLING, Problem(path, "is an old spelling", f"write {name}"))


def _threshold_warnings(settings: Settings) -> Iterator[Caution]:
    if settings.expands and settings.threshold >= settings.read_only_part:
        problem = Problem(
            "spec.poolConfig.poolExpansion.threshold.used-capacity",
            f"{settings.threshold:.0%} is not below {settings.read_only_part:.0%}, at which OpenEBS makes a pool "
            "read-only",
            "a pool would stop taking writes before it is expanded",
        )
        yield Caution(THRESHOLD_TOO_HIGH, problem)
