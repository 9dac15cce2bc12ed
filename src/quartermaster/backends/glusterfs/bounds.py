"""How much there may be to know of a cluster. Pure.

What the plan remembers and what the coordinator tells are one object each in the store, which takes about a mebibyte of
either. A write that is too large fails in every plan from then on, and nothing of the cluster is done any more. So
whatever would add to them is refused before, with a reason.
"""

from __future__ import annotations

import msgspec

from quartermaster.backends.glusterfs.facts import Moved
from quartermaster.backends.glusterfs.seeing import Seen
from quartermaster.planning.capacity import shown

_KIB = 1 << 10
# An API server takes 1 MiB in a ConfigMap. What was decided of volumes that are there already needs the rest.
_WITH_VOLUMES = 768 * _KIB
_WITH_MOVES = 896 * _KIB
# etcd takes 1.5 MiB in a request, and a report grows with every brick that does not run.
_REPORT = 1024 * _KIB


def why_no_volume(seen: Seen) -> str:
    """Nothing where the cluster can know of one more."""
    remembered, told = _remembered(seen), len(msgspec.json.encode(seen.facts))
    if remembered < _WITH_VOLUMES and told < _REPORT:
        return ""
    about = f"of its {len(seen.facts.volumes)} volumes {shown(remembered)} are remembered and {shown(told)} reported"
    return f"the cluster can know of no more volumes: {about}; delete some, or make another cluster"


def why_no_move(seen: Seen, moved: Moved, position: int) -> str:
    """Nothing where one more brick can be remembered to be elsewhere, or this one is already."""
    remembered = _remembered(seen)
    if moved.open is not None or str(position) in moved.bricks or remembered < _WITH_MOVES:
        return ""
    about = f"of {len(seen.memory.moves)} volumes with such {shown(remembered)} are remembered"
    return f"no more bricks can be remembered to be elsewhere: {about}; a volume that is deleted makes room"


def _remembered(seen: Seen) -> int:
    return sum(len(name) + len(text) for name, text in seen.view.memory.items())
