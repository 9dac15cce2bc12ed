"""The names that Quartermaster leaves on objects of others and of its own: annotations, labels, finalizers.

People and programs rely on them, so they stand in one place; docs/guide/operating.md says what each one does.
"""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "quartermaster.coreos.com"

# Holds a StorageNode until its host has nothing of it any more.
NODE_FINALIZER: Final = f"{DOMAIN}/node"

# On a StorageStatus: set by `qm pause` and `qm approve`.
PAUSED: Final = f"{DOMAIN}/paused"
APPROVED: Final = f"{DOMAIN}/approved"  # the digests of the steps that somebody approved, with spaces between them

# On a StorageNode: set by `qm node maintenance`, `drain` and `remove --lost`.
MAINTENANCE: Final = f"{DOMAIN}/maintenance"
DRAIN: Final = f"{DOMAIN}/drain"
ABANDON: Final = f"{DOMAIN}/abandon"  # the name of the host whose data are given up

# On a Host: set by `qm leave`; it is being taken out of the cluster.
LEAVING: Final = f"{DOMAIN}/leaving"

# The ConfigMap of the operator in its namespace; a restore sets the annotation, `qm resume` takes it away.
SETTINGS_NAME: Final = "quartermaster-settings"
OBSERVE_ONLY: Final = f"{DOMAIN}/observe-only"

# On the StorageClass, the memory and the volumes of a cluster.
NAMESPACE_LABEL: Final = f"{DOMAIN}/namespace"
TYPE_LABEL: Final = f"{DOMAIN}/type"
CLUSTER_LABEL: Final = f"{DOMAIN}/cluster"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "quartermaster"

# On a PersistentVolumeClaim while its volume is being made: what was decided, and the hold until that is finished.
# And what was decided before, where that was taken back and nothing is decided yet: something of it may be left.
INTENT: Final = f"{DOMAIN}/intent"
LEFT: Final = f"{DOMAIN}/left"
PROVISIONING_FINALIZER: Final = f"{DOMAIN}/provisioning"

# On a PersistentVolume: how it was made, and on which hosts and paths it is mounted. A Mount is held until it is not.
VOLUME: Final = f"{DOMAIN}/volume"
MOUNTED: Final = f"{DOMAIN}/mounted"
MOUNT_FINALIZER: Final = f"{DOMAIN}/mount"

# On a PersistentVolume, by `qm delete --force`: the UID of the claim by which it goes although somebody uses it. Its
# Assignment says that it is so.
DELETE_IN_USE: Final = f"{DOMAIN}/delete-in-use"

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


def provisioner_of(type: str) -> str:
    """Who makes the volumes of a storage system, as a StorageClass names it."""
    return f"{type}.{DOMAIN}"
