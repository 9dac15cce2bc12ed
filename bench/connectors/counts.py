"""How much is done in the whole form and in the quick one."""

from __future__ import annotations

import msgspec

from bench.report import Bar, Plot, Table


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    imports: int  # processes that import a library, for each contender
    delays_ms: tuple[int, ...]  # after which a device appears
    rounds: int  # of an attach and the bare script of its commands, for each delay
    peer_rounds: int  # of os-brick's attach, for each delay
    volumes: int  # attached at once
    processes: int  # by so many
    healthy: int  # attaches alone, and as many beside the one whose LUN never appears
    ten: tuple[str, ...]  # volumes that ten processes connect at once; the scorecard has an image of RBD as well
    patience_s: float  # of our attach whose LUN never appears
    fio_s: float  # of each measurement of a data path
    image_mib: int  # of the volume that it is measured on
    routes: tuple[str, ...]  # userspace routes whose data path is measured
    lab: bool  # an attach in the host lab as well
    peer: bool  # os-brick beside it


FULL = Counts(
    imports=15,
    delays_ms=(0, 50, 500, 1200),
    rounds=15,
    peer_rounds=3,
    volumes=100,
    processes=4,
    healthy=11,
    ten=("iscsi", "rbd"),
    patience_s=5.0,
    fio_s=5.0,
    image_mib=256,
    routes=("NBD", "ISCSI", "RBD", "GLUSTERFS"),
    lab=True,
    peer=True,
)
QUICK = Counts(
    imports=1,
    delays_ms=(0, 50),
    rounds=1,
    peer_rounds=0,
    volumes=8,
    processes=4,
    healthy=1,
    ten=("iscsi",),
    patience_s=3.0,
    fio_s=0.2,
    image_mib=16,
    routes=("NBD", "ISCSI"),
    lab=False,
    peer=False,
)


class Part(msgspec.Struct, frozen=True):
    bars: tuple[Bar, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
