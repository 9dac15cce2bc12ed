"""What a local cluster is to be: every node offers its directories and disks as they are, and no data ever move."""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.backends.base import ServiceAgent
from quartermaster.backends.local.agents import NodeAgent, VolumeAgent
from quartermaster.backends.local.volumes import LocalVolumes
from quartermaster.planning.cluster import ClusterPlan, ClusterView, VolumeClass
from quartermaster.planning.offering import plan_nodes
from quartermaster.planning.verdicts import enough_nodes_ready, enough_nodes_serve, something_missing


class LocalBackend:
    type = "local"
    shares_hosts = True  # each cluster is an instance of the agent
    stands_alone = True  # a single host may offer a directory by itself

    def agents(self) -> Sequence[ServiceAgent]:
        return (NodeAgent(), VolumeAgent())

    def volumes(self) -> LocalVolumes:
        return LocalVolumes()

    def plan(self, view: ClusterView) -> ClusterPlan:
        nodes = plan_nodes(view, NodeAgent.name, view.key.name)
        return ClusterPlan(
            assignments=nodes.assignments,
            nodes=nodes.outcomes,
            ready=enough_nodes_ready(nodes.outcomes),
            # Nothing is shared: a host that is lost takes its own volumes with it, and no others.
            usable=enough_nodes_serve(view, nodes.outcomes),
            degraded=something_missing(view, nodes.outcomes),
            removable=nodes.removable,
            memory=nodes.memory,
            # By the hosts, for nodes come one after the other: a claim that came with them was served on the first one.
            volume_class=VolumeClass(wait_for_consumer=max(view.hosts, len(view.nodes)) > 1),
        )
