"""A stand-in for the kubelets of nodes that scenarios make: without a heartbeat Kubernetes gives nodes up."""

from __future__ import annotations

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result, Scope
from quartermaster.hooks.conformance.site import NODE_LABEL
from quartermaster.resources import Node
from quartermaster.resources.kubernetes.core import CoreCondition
from quartermaster.support import clock

HEARTBEAT_S = 10.0


class Kubelet:
    """One request per node."""

    def __init__(self, scope: Scope) -> None:
        self._store = scope.store
        self._nodes = scope.caches.of(Node)

    async def reconcile(self, request: Request) -> Result:
        node = self._nodes.get(request)
        if node is None or NODE_LABEL not in node.metadata.labels:
            return DONE
        ready = CoreCondition(type="Ready", status="True", reason="KubeletReady", last_heartbeat_time=clock.timestamp())
        others = tuple(condition for condition in node.status.conditions if condition.type != "Ready")
        await self._store.update_status(replace(node, status=replace(node.status, conditions=(*others, ready))))
        return Result(requeue_after_s=HEARTBEAT_S)


def node_appeared(old: Node | None, new: Node | None) -> bool:
    return old is None
