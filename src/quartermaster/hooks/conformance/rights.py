"""What the scenarios must be allowed to do on Kubernetes, on live nodes and in a rehearsal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quartermaster.resources import (
    CStorClusterConfig,
    CStorClusterPlan,
    CStorClusterStorageSet,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    VolumeAttachment,
)
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import BlockDevice, CStorPoolCluster, CStorPoolInstance, CStorVolumeReplica

Rule = dict[str, Any]

_READ = ("get", "list")
_SEEN: tuple[type[Object], ...] = (
    CStorClusterPlan,
    CStorClusterStorageSet,
    Storage,
    CStorPoolCluster,
    CStorPoolInstance,
    PersistentVolumeClaim,
    VolumeAttachment,
)


def driving_rules() -> list[Rule]:
    """On live nodes: configs are made and deleted, nodes labelled, the rest is looked at."""
    return [
        _rule(CStorClusterConfig, (*_READ, "create", "update", "delete")),
        _rule(Node, (*_READ, "update")),
        *(_rule(kind, _READ) for kind in _SEEN),
    ]


def rehearsal_rules() -> list[Rule]:
    """Where stand-ins play nodes, disks and pools: these are made, broken and removed as well."""
    return [
        _rule(Node, (*_READ, "create", "update", "delete")),
        _rule(Node, ("update",), "/status"),
        _rule(PersistentVolume, (*_READ, "update")),
        _rule(BlockDevice, (*_READ, "create", "delete")),
        _rule(CStorPoolCluster, (*_READ, "create", "delete")),
        _rule(CStorPoolInstance, (*_READ, "update")),
        _rule(CStorVolumeReplica, (*_READ, "create", "delete")),
    ]


def _rule(kind: type[Object], verbs: Iterable[str], subresource: str = "") -> Rule:
    info = kind_of(kind)
    return {"apiGroups": [info.group], "resources": [info.plural + subresource], "verbs": list(verbs)}
