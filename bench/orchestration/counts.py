"""How much is done in the whole form and in the quick one."""

from __future__ import annotations

import msgspec

from bench.report import Bar, Plot, Table


class Counts(msgspec.Struct, frozen=True):
    sizes: tuple[int, ...]  # hosts, before one is added
    devices: int  # of each
    runs: int  # of whole commands
    idle_s: float
    hosts: int  # whose heartbeats a leader hears
    beating_s: float
    joins: int


FULL = Counts(sizes=(10, 100, 1_000, 10_000), devices=10, runs=7, idle_s=60.0, hosts=1_000, beating_s=600.0, joins=3)
QUICK = Counts(sizes=(10, 100), devices=10, runs=1, idle_s=3.0, hosts=50, beating_s=10.0, joins=1)


class Part(msgspec.Struct, frozen=True):
    bars: tuple[Bar, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
