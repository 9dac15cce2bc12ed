"""What a host that led, or carried a member of etcd, still has of that: backups, and the data of removed members.

Both hold every Secret of the cluster. A host that leaves keeps none of it; one that only gave up its member keeps it
for a week, in which it may still save somebody's day.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from quartermaster.backends.etcd.member import DIRECTORY as ETCD
from quartermaster.backends.etcd.member import REMOVED
from quartermaster.support import clock
from quartermaster.support.log import logger

BACKUPS = "backups"
KEPT_S = 7 * 86400.0

_log = logger("orchestration.joining")


def remains(directory: Path) -> list[Path]:
    """Of a host with that state directory."""
    return [path for place in (directory / BACKUPS, directory / ETCD / REMOVED) for path in _inside(place)]


def old_remains(directory: Path, *, may_lead: bool, now: float, kept_s: float = KEPT_S) -> list[Path]:
    """Those that have been there for so long. A host that may lead looks after its backups itself."""
    places = [directory / ETCD / REMOVED, *([] if may_lead else [directory / BACKUPS])]
    return [path for place in places for path in _inside(place) if now - _time(path) >= kept_s]


def discard_old(directory: Path, *, may_lead: bool) -> None:
    for path in old_remains(directory, may_lead=may_lead, now=clock.wall_time()):
        _log.info("removing what is left of a time in which this host had a member of etcd", path=str(path))
        discard(path)


def discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _inside(place: Path) -> list[Path]:
    return sorted(place.iterdir()) if place.is_dir() and not place.is_symlink() else []


def _time(path: Path) -> float:
    """When it came to lie there: a rename changes no other time."""
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:
        return clock.wall_time()
