"""What a cluster with disks and OpenEBS would do, as small controllers on the same store.

None of it can run here for real: a CSI driver needs a cloud or a storage array, the node disk manager needs disks on
nodes, and OpenEBS needs ZFS in its pool Pods. The stand-ins keep to what the real ones show through the API, and refuse
what the real ones refuse. They know nothing of the rules that are tested with them.
"""

from tests.cstor.standins.disks import ATTACHER, IMMEDIATE, WAITING, Attacher, Provisioner, storage_classes
from tests.cstor.standins.ndm import NodeDiskManager
from tests.cstor.standins.pools import PoolOperator
from tests.cstor.standins.together import standins
from tests.cstor.standins.webhook import Guarded

__all__ = [
    "ATTACHER",
    "IMMEDIATE",
    "WAITING",
    "Attacher",
    "Guarded",
    "NodeDiskManager",
    "PoolOperator",
    "Provisioner",
    "standins",
    "storage_classes",
]
