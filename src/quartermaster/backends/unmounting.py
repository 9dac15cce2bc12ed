"""Taking a volume off a directory of this host: the volume itself, and never what somebody else has mounted there.

A path that was written down says nothing of what is mounted on it by now. `umount` takes whatever is on top, so the
kernel's table is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from quartermaster.host import Host
from quartermaster.host.mountinfo import Mount, mounts_at
from quartermaster.host.mounts import canonical
from quartermaster.support.errors import MountConflictError

# Whether a mount of the table is the volume; MountConflictError where that cannot be told.
IsVolume = Callable[[Sequence[Mount], Mount], bool]


def is_there(machine: Host, target: Path, is_volume: IsVolume) -> bool:
    """Also beneath something else."""
    _, ours = _look(machine, target, is_volume)
    return bool(ours)


async def unmount_volume(machine: Host, name: str, target: Path, is_volume: IsVolume) -> bool:
    """Whether it was mounted there. MountConflictError, and nothing is changed, where something else is on top."""
    stack, ours = _look(machine, target, is_volume)
    if not ours:
        return False
    others = [mount for mount in stack[stack.index(ours[0]) :] if mount not in ours]
    if others:
        raise MountConflictError(
            f"cannot unmount {name} from {target}: {others[-1].source} ({others[-1].type}) is mounted on top of it",
            hint=f"`umount {target}` takes that away if nobody needs it; nothing was changed",
        )
    for left in reversed(range(len(ours))):
        await machine.mounts.unmount(str(target), remove=left == 0 and len(stack) == len(ours))
    return True


def says_its_name(name: str) -> IsVolume:
    """What can be told of a volume that is gone: the whole of it is mounted, and its source is called as it was. What a
    bound directory was part of nobody knows any more.
    """
    return lambda _, mount: mount.root == "/" and re.split("[:/]", mount.source)[-1] == name


def _look(machine: Host, target: Path, is_volume: IsVolume) -> tuple[list[Mount], list[Mount]]:
    """What is mounted on the target from the bottom up, and which of that is the volume."""
    table = machine.mounts.table()
    stack = list(mounts_at(table, canonical(table, str(target))))
    return stack, [mount for mount in stack if is_volume(table, mount)]
