"""Records of volumes that glusterd was about to write when its host died: one of them keeps it from starting for ever.

glusterd writes a volume down file by file, and replaces the file of a brick by removing the old one first. What it has
of a volume is what its peers have: without the torn record it starts, and takes the volume from them (with GlusterFS
10.3 four seconds later). Its bricks of that volume have to be started anew, for with the record their ports are gone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.processes import end_bricks_of
from quartermaster.support.log import logger

_TORN = "torn"  # beside the state of glusterd: the last record of each volume that was set aside
_BRICK = "brick-"

_log = logger("backends.glusterfs.torn")


def torn_records(state: Path) -> list[str]:
    """Volumes of which not all is written down that the record itself names; none where no peer has another one."""
    volumes, peers = state / "vols", state / "peers"
    if not volumes.is_dir() or not peers.is_dir() or not any(peers.iterdir()):
        return []
    return sorted(one.name for one in volumes.iterdir() if _is_torn(one))


def _is_torn(volume: Path) -> bool:
    info = volume / "info"
    if not info.is_file():
        return True
    pairs = (line.partition("=") for line in info.read_text(errors="replace").splitlines())
    bricks = [value for key, _, value in pairs if key.startswith(_BRICK)]
    return not bricks or not all((volume / "bricks" / brick).is_file() for brick in bricks)


async def set_aside(context: AgentContext, state: Path, volumes: list[str], uuid: str) -> None:
    """While no glusterd runs. `uuid` is that of ours."""
    aside = context.directory / _TORN
    aside.mkdir(exist_ok=True, mode=0o700)
    for volume in volumes:
        _log.warning("glusterd does not start with what it has written of a volume", volume=volume, kept=str(aside))
        shutil.rmtree(aside / volume, ignore_errors=True)
        (state / "vols" / volume).rename(aside / volume)
    await end_bricks_of(context, volumes, uuid)
