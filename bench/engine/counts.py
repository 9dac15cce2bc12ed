"""How much is done in each form of the benchmark; the code is the same."""

from __future__ import annotations

import msgspec

from bench.report import Bar, Plot, Table


class Counts(msgspec.Struct, frozen=True):
    objects: int  # on the API server, for each contender
    aiohttp_objects: int  # there, for our controller with its requests over aiohttp
    rounds: int  # of our controller, each between two runs of the load generator; and on memory
    concurrency: int  # writes at once: our workers, the connections of wrk
    idle_s: float
    store_objects: int  # on etcd and sqlite
    smoke_objects: int  # on the oldest etcd
    scale: tuple[int, ...]  # on memory
    writes: int  # whose way to the reconciler is timed


FULL = Counts(
    objects=10_000,
    aiohttp_objects=3_000,
    rounds=3,
    concurrency=16,
    idle_s=20.0,
    store_objects=10_000,
    smoke_objects=1_000,
    scale=(1_000, 10_000, 50_000),
    writes=1_000,
)
QUICK = Counts(
    objects=150,
    aiohttp_objects=50,
    rounds=1,
    concurrency=16,
    idle_s=0.5,
    store_objects=100,
    smoke_objects=50,
    scale=(100, 300),
    writes=20,
)


class Part(msgspec.Struct, frozen=True):
    """What one part of the benchmark adds to the section."""

    bars: tuple[Bar, ...]
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
