"""How much is done in the whole form and in the quick one."""

from __future__ import annotations

import msgspec

from bench.report import Bar, Plot, Table


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    sizes: tuple[int, ...]  # hosts, before one is added
    devices: int  # of each
    runs: int  # of whole commands, after one that compiles
    settle_s: float  # before an idle process is looked at
    idle_s: float
    hosts: int  # whose heartbeats a leader hears
    beating_s: float
    members: int  # of etcd, before hosts join
    joins: int


FULL = Counts(
    sizes=(10, 100, 1_000, 10_000),
    devices=10,
    runs=7,
    settle_s=10.0,
    idle_s=60.0,
    hosts=1_000,
    beating_s=600.0,
    members=3,
    joins=3,
)
QUICK = Counts(
    sizes=(10, 50), devices=10, runs=0, settle_s=0.0, idle_s=1.0, hosts=20, beating_s=1.0, members=1, joins=1
)


class Part(msgspec.Struct, frozen=True):
    bars: tuple[Bar, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
