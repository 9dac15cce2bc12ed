"""From the objects of a namespace to the view of each of its clusters: pure, so `qm plan` sees what the leader sees.

What concerns more than one cluster (which host a node is, who has a disk that two nodes name) is decided here once, for
all clusters and types together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quartermaster.planning.capacity import may_leave
from quartermaster.planning.choosing import IN_USE, choose_devices, offer_of, refused_devices, unknown_consents
from quartermaster.planning.claiming import (
    SERVICE,
    Claim,
    Meant,
    claim_key,
    claims_of_service,
    devices_in,
    directories_in,
    first_claims,
    meant_by,
    nested,
    whose,
    without_duplicates,
)
from quartermaster.planning.cluster import (
    ABANDON,
    DRAIN,
    MAINTENANCE,
    ClusterKey,
    ClusterView,
    NodeView,
    Report,
    Settings,
    Verdict,
    VolumeView,
)
from quartermaster.planning.health import HostHealth, HostState
from quartermaster.planning.matching import (
    SAME_HOST,
    STILL_ELSEWHERE,
    Match,
    addresses_of,
    first_come,
    home_of,
    match_hosts,
)
from quartermaster.planning.releasing import record_name, released_on
from quartermaster.resources import marks
from quartermaster.resources.devices import Device
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import (
    DEFAULT_CLUSTER,
    ONLINE,
    StorageCluster,
    StorageNode,
    StorageStatus,
    cluster_of,
    zone_of,
)

SAME_DIRECTORY = "SameDirectory"

_SILENT = HostState(healthy=False)
_NO_DIRECTORIES: tuple[tuple[str, ...], None] = ((), None)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one namespace at a moment. Lists are by name, as caches give them."""

    namespace: str
    nodes: Sequence[StorageNode] = ()  # of all types
    hosts: Sequence[Host] = ()
    clusters: Sequence[StorageCluster] = ()
    statuses: Sequence[StorageStatus] = ()
    assignments: Sequence[Assignment] = ()
    volumes: Mapping[ClusterKey, tuple[VolumeView, ...]] = {}
    memories: Mapping[ClusterKey, dict[str, str]] = {}
    more_labels: Mapping[str, Mapping[str, str]] = {}  # of Kubernetes' own nodes, by name
    agents: Mapping[str, Sequence[str]] = {}  # type → the agents of its backend
    sharing: Sequence[str] = ()  # types of which a host may be a node of several clusters
    always: Sequence[ClusterKey] = ()  # clusters that are shown although nobody named them


def clusters_of(snapshot: Snapshot) -> tuple[ClusterKey, ...]:
    """Every cluster that somebody named, in order."""
    found = dict.fromkeys(snapshot.always)
    for node in snapshot.nodes:
        found[ClusterKey(snapshot.namespace, node.spec.type, cluster_of(node))] = None
        found[ClusterKey(snapshot.namespace, node.spec.type, home_of(node))] = None
    for cluster in snapshot.clusters:
        found[cluster_key(cluster)] = None
    return tuple(sorted(found))


def cluster_key(cluster: StorageCluster) -> ClusterKey:
    return ClusterKey(cluster.metadata.namespace, cluster.spec.type, cluster.spec.cluster or DEFAULT_CLUSTER)


def settings_clusters(clusters: Sequence[StorageCluster]) -> dict[ClusterKey, StorageCluster]:
    """The StorageCluster that counts for each cluster: where there are two, the one that was there first."""
    found: dict[ClusterKey, StorageCluster] = {}
    for cluster in sorted(clusters, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name)):
        found.setdefault(cluster_key(cluster), cluster)
    return found


def settings_of(cluster: StorageCluster | None, status: StorageStatus | None) -> Settings:
    """What the StorageCluster says, and what `qm pause` and `qm approve` wrote on the StorageStatus."""
    annotations = status.metadata.annotations if status is not None else {}
    said = Settings(paused=marks.PAUSED in annotations, approved=annotations.get(marks.APPROVED, ""))
    if cluster is None:
        return said
    spec, timings = cluster.spec, cluster.spec.timings
    times = {
        "heartbeat_s": timings.heartbeat_seconds if timings else None,
        "unhealthy_after_s": timings.unhealthy_after_seconds if timings else None,
        "move_data_after_s": timings.move_data_after_seconds if timings else None,
        "debounce_s": timings.debounce_seconds if timings else None,
    }
    return msgspec.structs.replace(
        said,
        min_nodes=spec.min_nodes,
        replication=spec.replication,
        default_class=bool(spec.default_class),
        require_approval=bool(spec.require_approval),
        tls=bool(spec.tls),
        **{name: value for name, value in times.items() if value is not None},
    )


class _Service(msgspec.Struct, frozen=True, gc=False):
    """What one assignment says and claims."""

    assignment: Assignment
    report: Report
    claims: Mapping[str, Claim]


class _Known(msgspec.Struct, frozen=True, gc=False):
    """What a node means, and by what that was found: whole objects, which are mostly the very same, and their parts."""

    objects: tuple[object, ...]
    parts: tuple[object, ...]
    meant: Meant


class Recall:
    """What was found before, and by what.

    Where an object is another one, what is looked at of it is compared: the leader's own writes to statuses change
    nothing here.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, _Known] = {}
        self.views: dict[ClusterKey, dict[str, tuple[tuple[object, ...], NodeView]]] = {}
        self.services: dict[str, _Service] = {}


def views_of(
    snapshot: Snapshot, health: HostHealth, types: Sequence[str] | None = None, *, recall: Recall | None = None
) -> dict[ClusterKey, ClusterView]:
    """The views of all clusters, or of those of some types.

    Who asks again and again keeps a `recall`: then only the devices of nodes and hosts that differ are judged anew.
    """
    survey = _Survey(snapshot, recall)
    wanted = [key for key in clusters_of(snapshot) if types is None or key.type in types]
    return {key: survey.view(key, health) for key in wanted}


def view_of(
    key: ClusterKey,
    *,
    nodes: Sequence[StorageNode],
    hosts: Sequence[Host],
    health: HostHealth,
    assignments: Sequence[Assignment] = (),
    clusters: Sequence[StorageCluster] = (),
    volumes: Sequence[VolumeView] = (),
    status: StorageStatus | None = None,
    memory: Mapping[str, str] | None = None,
) -> ClusterView:
    """One cluster, from the objects of its namespace."""
    snapshot = Snapshot(
        namespace=key.namespace,
        nodes=nodes,
        hosts=hosts,
        clusters=clusters,
        statuses=(status,) if status is not None else (),
        assignments=assignments,
        volumes={key: tuple(volumes)},
        memories={key: dict(memory or {})},
    )
    return _Survey(snapshot).view(key, health)


class _Survey:
    """What holds for all clusters of a namespace, found once."""

    def __init__(self, snapshot: Snapshot, recall: Recall | None = None) -> None:
        self._snapshot = snapshot
        self._recall = recall if recall is not None else Recall()
        self._services = self._recalled_services()
        self._assignments: dict[str, list[Assignment]] = {}
        self._reports: dict[str, list[Report]] = {}
        for one in self._services:
            self._assignments.setdefault(one.assignment.spec.host, []).append(one.assignment)
            self._reports.setdefault(one.assignment.spec.host, []).append(one.report)
        self._settings = settings_clusters(snapshot.clusters)
        self._statuses = {status.metadata.name: status for status in snapshot.statuses}
        self._matches = match_hosts(
            snapshot.nodes,
            snapshot.hosts,
            more_labels=snapshot.more_labels,
            deployed={one: self._deployed(one) for one in dict.fromkeys(node.spec.type for node in snapshot.nodes)},
            sharing=snapshot.sharing,
        )
        self._hosts = len(snapshot.hosts)
        self._clients = tuple(sorted({address for host in snapshot.hosts for address in addresses_of(host)}))
        self._members: dict[ClusterKey, list[StorageNode]] = {}
        meant: dict[str, Meant] = {}
        for node in first_come(snapshot.nodes):
            for cluster in dict.fromkeys((home_of(node), cluster_of(node))):
                self._members.setdefault(ClusterKey(snapshot.namespace, node.spec.type, cluster), []).append(node)
            meant[node.metadata.name] = self._recalled(node, self._matches[node.metadata.name])
        for name in [name for name in self._recall.nodes if name not in meant]:
            del self._recall.nodes[name]
        winners = first_claims(meant.values(), (one.claims for one in self._services))
        self._devices = {name: without_duplicates(name, one.devices, one.keys, winners) for name, one in meant.items()}
        self._refused = {
            name: one.refused if self._devices[name] is one.devices else refused_devices(self._devices[name])
            for name, one in meant.items()
        }
        self._directories = {name: one.offer.directories for name, one in meant.items()}
        self._winners = winners
        self._nested = self._nested_directories()

    def view(self, key: ClusterKey, health: HostHealth) -> ClusterView:
        status = self._statuses.get(key.status_name)
        settings = settings_of(self._settings.get(key), status)
        members = sorted(self._members.get(key, ()), key=lambda node: node.metadata.name)
        times = {}
        if self._settings.get(key) is not None:
            times = {
                "unhealthy_after_s": settings.unhealthy_after_s,
                "move_data_after_s": settings.move_data_after_s,
            }
        before = self._recall.views.get(key, {})
        seen = {node.metadata.name: self._recalled_view(key, node, health, times, before) for node in members}
        self._recall.views[key] = seen
        nodes = [view for _, view in seen.values()]
        return ClusterView(
            key=key,
            settings=settings,
            nodes=may_leave(nodes),
            volumes=tuple(sorted(self._snapshot.volumes.get(key, ()), key=lambda volume: volume.name)),
            online=status is not None and status.spec.status == ONLINE,
            memory=dict(self._snapshot.memories.get(key, {})),
            clients=self._clients,
            hosts=self._hosts,
        )

    def _recalled_view(
        self,
        key: ClusterKey,
        node: StorageNode,
        health: HostHealth,
        times: Mapping[str, float],
        before: Mapping[str, tuple[tuple[object, ...], NodeView]],
    ) -> tuple[tuple[object, ...], NodeView]:
        name = node.metadata.name
        match = self._matches[name]
        host = _host_name(match)
        state = health.of(host, **times) if host else _SILENT
        directories = self._own_directories(name)
        given = (
            *(node, match.host, match.wrong, match.complaint, state.healthy, state.lost),
            *(self._devices[name], directories, self._assignments.get(host)),
        )
        known = before.get(name)
        same = known is not None and known[0] == given
        return given, known[1] if known is not None and same else self._node(key, node, state, directories)

    def _node(
        self, key: ClusterKey, node: StorageNode, state: HostState, own: tuple[tuple[str, ...], Verdict | None]
    ) -> NodeView:
        name = node.metadata.name
        match = self._matches[name]
        host = _host_name(match)
        stated = node.spec.storage_network.ips if node.spec.storage_network is not None else ()
        directories, twice = own
        consents = None
        if node.spec.wipe:
            consents = unknown_consents(self._devices[name], _reported(match.host), unused_consents(node), host)
        complaints = tuple(one for one in (match.complaint, twice, self._refused[name], consents) if one)
        return NodeView(
            node=node,
            host=host if not _is_anothers(match) else "",
            zone=zone_of(node),
            labels=match.host.metadata.labels if match.host is not None else {},
            addresses=stated or (addresses_of(match.host) if match.host is not None else ()),
            devices=self._devices[name],
            present=_reported(match.host),
            directories=directories,
            healthy=state.healthy,
            lost=state.lost,
            leaving=_leaving(key, node, healthy=state.healthy),
            wrong=match.wrong or _elsewhere(key, node),
            complaints=complaints,
            reports=tuple(self._own_reports(key.type, host)) if _has_host(match, key, node) else (),
        )

    def _own_directories(self, name: str) -> tuple[tuple[str, ...], Verdict | None]:
        """Those that the node may have, and what keeps it from another one."""
        if not self._directories[name]:
            return _NO_DIRECTORIES
        host = _host_name(self._matches[name])
        kept: list[str] = []
        lost = ""
        for path in self._directories[name]:
            claim = self._winners.get(claim_key(host, path))
            other, owner = self._nested.get(host, {}).get(path, ("", ""))
            if claim is not None and claim.owner != name:
                lost = lost or f"{path} belongs to {whose(claim.owner)} already"
                continue
            if other:
                how = "lies in" if path.startswith(other) else "holds"
                lost = lost or f"{path} {how} {other}, which belongs to {whose(owner)} already"
            if not other or (claim is not None and claim.serving):
                kept.append(path)
        return tuple(kept), Verdict(False, SAME_DIRECTORY, lost) if lost else None

    def _nested_directories(self) -> dict[str, dict[str, tuple[str, str]]]:
        """By host; only of hosts on which somebody wants a directory."""
        nodes = {node.metadata.name: node for node in self._snapshot.nodes if self._directories[node.metadata.name]}
        places: dict[str, dict[str, str]] = {}  # host → directory → the node whose service has it
        for name, directories in self._directories.items():
            host = _host_name(self._matches[name]) if directories else ""
            if host:
                found = places.setdefault(host, {})
                for path in directories:
                    found.setdefault(path, "")
                for report in self._reports_of(nodes[name], host):
                    found.update(dict.fromkeys(directories_in(report.desired), name))
        return {host: nested(self._claimed(host, found)) for host, found in places.items()}

    def _claimed(self, host: str, places: Mapping[str, str]) -> list[tuple[str, Claim]]:
        others = [path for one in self._assignments.get(host, ()) for path in directories_in(one.spec.desired)]
        found: list[tuple[str, Claim]] = []
        for path in dict.fromkeys((*places, *others)):
            claim = self._winners.get(claim_key(host, path))
            if claim is not None:
                # What a node has and does not declare any more is its own all the same.
                mine = places.get(path) if claim.owner.startswith(SERVICE) else ""
                found.append((path, msgspec.structs.replace(claim, owner=mine) if mine else claim))
        return found

    def _recalled_services(self) -> list[_Service]:
        before, now = self._recall.services, {}
        for assignment in self._snapshot.assignments:
            known = before.get(assignment.metadata.name)
            if known is None or known.assignment is not assignment:
                same = known is not None and known.assignment.spec == assignment.spec
                claims = known.claims if known is not None and same else claims_of_service(assignment)
                known = _Service(assignment, report_of(assignment), claims)
            now[assignment.metadata.name] = known
        self._recall.services = now
        return list(now.values())

    def _recalled(self, node: StorageNode, match: Match) -> Meant:
        host, status, name = match.host, node.status, node.metadata.name
        services = self._assignments.get(_host_name(match), ())
        given = (match.wrong, self._settings.get(self._home(node)), self._released(node, match))
        objects = (node, host, services, *given)
        known = self._recall.nodes.get(name)
        if known is not None and known.objects == objects:
            # These may be equal and not the same; the same are compared in no time.
            self._recall.nodes[name] = _Known(objects, known.parts, known.meant)
            return known.meant
        parts = (
            *(node.spec, status.devices, status.wiped, home_of(node)),
            *((host.metadata.name, host.spec.wishes, _reported(host)) if host is not None else ()),
            *(one.spec for one in services),
            *given,
        )
        meant = known.meant if known is not None and known.parts == parts else self._choose(node, match)
        self._recall.nodes[name] = _Known(objects, parts, meant)
        return meant

    def _choose(self, node: StorageNode, match: Match) -> Meant:
        wishes = match.host.spec.wishes if match.host is not None else None
        offer = offer_of(node, self._settings.get(self._home(node)), wishes)
        if match.host is None:
            return meant_by(node, match, offer)
        devices = choose_devices(
            offer,
            _reported(match.host),
            known=node.status.devices,
            serving=self._serving(node, match.host.metadata.name),
            released=released_on(self._released(node, match)),
            consents=unused_consents(node),
            host=match.host.metadata.name,
        )
        reports = self._reports_of(node, match.host.metadata.name)
        offered = {path for report in reports for path in directories_in(report.desired)}
        return meant_by(node, match, offer, devices, offered=offered)

    def _home(self, node: StorageNode) -> ClusterKey:
        return ClusterKey(self._snapshot.namespace, node.spec.type, home_of(node))

    def _released(self, node: StorageNode, match: Match) -> str | None:
        return self._snapshot.memories.get(self._home(node), {}).get(record_name(_host_name(match)))

    def _serving(self, node: StorageNode, host: str) -> dict[str, str]:
        """Identity → declared path of the devices that an assignment names, or that the status says are in use."""
        found = {one.id or one.path: one.path for one in node.status.devices if one.state == IN_USE}
        for report in self._reports_of(node, host):
            for device in devices_in(report.desired):
                found[str(device.get("id") or device["path"])] = str(device.get("declared") or device["path"])
        return found

    def _reports_of(self, node: StorageNode, host: str) -> list[Report]:
        """Where clusters share hosts, each is an instance of the agent: what another one has is not this one's."""
        shared = node.spec.type in self._snapshot.sharing
        found = self._own_reports(node.spec.type, host)
        return [one for one in found if not shared or one.instance == home_of(node)]

    def _own_reports(self, type: str, host: str) -> Iterable[Report]:
        reports = self._reports.get(host, ())
        if not self._snapshot.agents:
            return reports
        agents = self._snapshot.agents.get(type, ())
        return [report for report in reports if report.agent in agents]

    def _deployed(self, type: str) -> list[str]:
        return [host for host in self._reports if any(True for _ in self._own_reports(type, host))]


def unused_consents(node: StorageNode) -> list[str]:
    used = {one.id for one in node.status.wiped}
    return [consent for consent in node.spec.wipe if consent not in used]


def report_of(assignment: Assignment) -> Report:
    spec, forced = assignment.spec, marks.DELETE_IN_USE in assignment.metadata.annotations
    told = (spec.agent, spec.instance, spec.generation, spec.desired, bool(spec.absent))
    return Report(*told, assignment.status, forced=forced)


def _host_name(match: Match) -> str:
    return match.host.metadata.name if match.host is not None else ""


def _has_host(match: Match, key: ClusterKey, node: StorageNode) -> bool:
    """What is on a host that another node or cluster has is not this one's."""
    return home_of(node) == key.name and not _is_anothers(match)


def _is_anothers(match: Match) -> bool:
    """Whether its host is another node already, of which everything that is there is told."""
    return match.wrong is not None and match.wrong.reason == SAME_HOST


def _leaving(key: ClusterKey, node: StorageNode, *, healthy: bool) -> str:
    annotations = node.metadata.annotations
    if annotations.get(marks.ABANDON) and annotations[marks.ABANDON] == node.status.host and not healthy:
        return ABANDON
    if node.metadata.deletion_timestamp is not None or marks.DRAIN in annotations or cluster_of(node) != key.name:
        return DRAIN
    return MAINTENANCE if marks.MAINTENANCE in annotations else ""


def _elsewhere(key: ClusterKey, node: StorageNode) -> Verdict | None:
    home = home_of(node)
    if home == key.name:
        return None
    return Verdict(False, STILL_ELSEWHERE, f"the node leaves cluster {home} first")


def _reported(host: Host | None) -> tuple[Device, ...]:
    return host.status.inventory.devices if host is not None and host.status.inventory is not None else ()
