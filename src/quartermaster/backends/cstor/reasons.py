"""The words by which programs and people tell the states of a cStor cluster apart, and what to do about each.

Everything that a status, a condition or an Event of this backend may say in one word stands here, once. A test holds
the guide to it: each is explained there.
"""

from __future__ import annotations

from typing import Final

# Phases of a CStorClusterConfig.
INVALID: Final = "Invalid"  # the spec has mistakes; nothing is changed until they are mended
WAITING: Final = "Waiting"  # nothing to plan with
PROVISIONING: Final = "Provisioning"  # disks are being made and attached
CREATING: Final = "Creating"  # the pool cluster is applied, its pools are not all online yet
READY: Final = "Ready"
UPDATING: Final = "Updating"  # a node, a disk or a group is being changed
DEGRADED: Final = "Degraded"  # something is missing that we cannot or may not mend by ourselves
DELETING: Final = "Deleting"
# … and of what lies below it.
PENDING: Final = "Pending"
BOUND: Final = "Bound"
ATTACHED: Final = "Attached"
MOVING: Final = "Moving"

# Conditions of a CStorClusterConfig.
VALID: Final = "Valid"
PLANNED: Final = "Planned"
STORAGE_READY: Final = "StorageReady"
POOL_CLUSTER_APPLIED: Final = "PoolClusterApplied"
POOLS_HEALTHY: Final = "PoolsHealthy"
IS_DEGRADED: Final = "Degraded"
NODE_CHANGE_HELD: Final = "NodeChangeHeld"
DISK_LOST: Final = "DiskLost"
EXPANDING: Final = "Expanding"
REPLACEMENT_OFFERED: Final = "ReplacementOffered"
BEYOND_OPENEBS: Final = "BeyondOpenEBS"
WARNED: Final = "Warned"
DELETION_BLOCKED: Final = "DeletionBlocked"
# … and of what lies below it.
IS_READY: Final = "Ready"

# Reasons.
AS_DECLARED: Final = "AsDeclared"
SPEC_INVALID: Final = "SpecInvalid"
NO_CANDIDATES: Final = "NoCandidates"
NODES_CHOSEN: Final = "NodesChosen"
PLAN_FOREIGN: Final = "PlanOfAnother"
DISKS_PENDING: Final = "DisksPending"
DISKS_ACTIVE: Final = "DisksActive"
APPLIED: Final = "Applied"
CONTRACT_BROKEN: Final = "ContractBroken"
POOL_CLUSTER_FOREIGN: Final = "PoolClusterOfAnother"
POOL_CLUSTER_PENDING: Final = "PoolClusterPending"
ALL_ONLINE: Final = "AllOnline"
NOT_ONLINE: Final = "NotOnline"
NONE_YET: Final = "NoneYet"
MISSING_POOLS: Final = "MissingPools"
NODE_LOST: Final = "NodeLost"
NODE_NOT_ALLOWED: Final = "NodeNotAllowed"
VOLUMES_IN_THE_WAY: Final = "VolumesInTheWay"
LAST_HEALTHY_COPY: Final = "LastHealthyCopy"
OTHER_CHANGE_IN_FLIGHT: Final = "OtherChangeInFlight"
OTHER_POOL_UNHEALTHY: Final = "OtherPoolUnhealthy"
NOTHING_HELD: Final = "NothingHeld"
REPLACING: Final = "Replacing"
GRACE_PERIOD: Final = "GracePeriod"
GROUP_LOST: Final = "GroupLost"
STRIPE_LOST: Final = "StripeLost"
DEVICE_OBJECT_GONE: Final = "DeviceObjectGone"
NO_REPLACEMENT: Final = "NoReplacement"
REPLACEMENT_REFUSED: Final = "ReplacementRefused"
THRESHOLD_PASSED: Final = "ThresholdPassed"
EXPANSION_DISABLED: Final = "ExpansionDisabled"
EXPANSION_LIMIT: Final = "ExpansionLimit"
DISKS_SMALLER: Final = "DisksSmallerThanDeclared"
READ_CACHE_UNUSED: Final = "ReadCacheUnused"
SPARE_HELD: Final = "SpareHeld"
THRESHOLD_TOO_HIGH: Final = "ThresholdTooHigh"
OLD_SPELLING: Final = "OldSpelling"
VOLUME_REPLICAS: Final = "VolumeReplicasExist"
TEARING_DOWN: Final = "TearingDown"
IN_USE: Final = "InUse"
OWNER_WANTS_IT: Final = "OwnerWantsIt"

# Reasons of a Storage.
CLAIM_PENDING: Final = "ClaimPending"
CLAIM_LOST: Final = "ClaimLost"
CLASS_MISSING: Final = "ClassMissing"
SETTINGS_MISSING: Final = "SettingsMissing"
NOT_A_CSI_VOLUME: Final = "NotACSIVolume"
ATTACH_PENDING: Final = "AttachPending"
ATTACH_FAILED: Final = "AttachFailed"
DETACH_PENDING: Final = "DetachPending"
DEVICE_PENDING: Final = "DevicePending"
DEVICE_AMBIGUOUS: Final = "DeviceAmbiguous"
DEVICE_INACTIVE: Final = "DeviceInactive"
DEVICE_ACTIVE: Final = "DeviceActive"

# Reasons of Events that no condition has.
NODE_ADDED: Final = "NodeAdded"
NODE_DROPPED: Final = "NodeDropped"
POOL_MOVED: Final = "PoolMoved"
DISK_REPLACED: Final = "DiskReplaced"
EXPANDED: Final = "PoolExpanded"
ADOPTED: Final = "PoolClusterAdopted"
WRITE_CACHE_FOUND: Final = "WriteCacheFound"
POOL_CLUSTER_CHANGED: Final = "PoolClusterChanged"
