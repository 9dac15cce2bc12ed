"""Why an agent did not do what it was asked to, where that is decided by: the words of its report are for people."""

from __future__ import annotations

from typing import Final

NOT_KEPT: Final = "VolumeNotKept"  # it deletes no volume that another host keeps
NOT_THERE: Final = "VolumeNotThere"  # it was made, and the pool does not know it any more
IN_USE: Final = "VolumeInUse"  # it is not deleted while somebody uses it, or nobody can say that
AWAITED: Final = "PeersAwaited"  # nobody uses it, and gluster deletes it only while all peers answer
SUPERSEDED: Final = "KeeperSuperseded"  # another host was told to keep it since
LACKING: Final = "CopiesLacking"  # copies that were taken for whole know of less to be healed than others
USED_BEFORE: Final = "BrickUsedBefore"  # gluster takes no directory that ever was a brick
