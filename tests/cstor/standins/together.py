"""All stand-ins as services of one runtime."""

from __future__ import annotations

from typing import Any

from quartermaster.engine import Controller, mapped
from quartermaster.resources import (
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from quartermaster.resources.openebs import BlockDevice, BlockDeviceClaim, CStorPoolCluster, CStorPoolInstance
from tests.cstor.standins.disks import Attacher, Provisioner, claims_of_volume
from tests.cstor.standins.kubelet import Kubelet, node_appeared
from tests.cstor.standins.ndm import NodeDiskManager, volumes_of_attachment, volumes_of_device
from tests.cstor.standins.pools import PoolOperator, clusters_of


def standins(*, binds: bool, refused: list[str]) -> tuple[Controller[Any], ...]:
    """`binds`: whether claims are bound here, because no kube-controller-manager runs beside the store.

    `refused` gets a line for whatever was asked of them and would cost data or be refused.
    """
    # Where claims are bound by somebody else, nodes are watched by somebody as well.
    kubelets = () if binds else (Controller("standin-kubelet", Node, Kubelet, predicate=node_appeared),)
    return (
        *kubelets,
        Controller(
            "standin-provisioner",
            PersistentVolumeClaim,
            lambda scope: Provisioner(scope, binds=binds),
            watches=(mapped(PersistentVolume, claims_of_volume),),
            reads=(StorageClass,),
        ),
        Controller("standin-attacher", VolumeAttachment, Attacher),
        Controller(
            "standin-node-disk-manager",
            PersistentVolume,
            lambda scope: NodeDiskManager(scope, refused),
            watches=(mapped(VolumeAttachment, volumes_of_attachment), mapped(BlockDevice, volumes_of_device)),
        ),
        Controller(
            "standin-pool-operator",
            CStorPoolCluster,
            lambda scope: PoolOperator(scope, refused),
            watches=(mapped(CStorPoolInstance, clusters_of), mapped(BlockDeviceClaim, clusters_of)),
            reads=(BlockDevice,),
        ),
    )
