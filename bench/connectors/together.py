"""Ten processes connect one volume at once: it is attached once, and all get the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from bench.connectors.counts import Counts, Part
from bench.connectors.host import FakeHost, Ran, fake_host
from bench.connectors.library import BRICK, OURS, Call, Outcome, start_library
from bench.connectors.volumes import add_iscsi, connect, iscsi_data, rbd_data
from bench.report import Bar, Table
from bench.running import require

PROCESSES = 10


class Ten(msgspec.Struct, frozen=True):
    library: str
    kind: str
    attaches: int  # logins or maps
    answers: int  # of the ten that were a path
    different: int  # paths among them
    errors: tuple[str, ...] = ()


async def run(directory: Path, counts: Counts) -> Part:
    names = (OURS, BRICK) if counts.peer else (OURS,)
    return summarise([await measure(directory, name, kind) for name in names for kind in counts.ten])


async def measure(directory: Path, name: str, kind: str) -> Ten:
    async with fake_host(directory, f"ten-{kind}-{name}") as host:
        call = declare(host, kind)
        async with AsyncExitStack() as stack:
            libraries = await asyncio.gather(
                *(stack.enter_async_context(start_library(directory, host, name)) for _ in range(PROCESSES))
            )
            outcomes = await asyncio.gather(*(each.one(call) for each in libraries))
        return counted(name, kind, outcomes, host.commands())


def declare(host: FakeHost, kind: str) -> Call:
    data = iscsi_data(add_iscsi(host.kernel, 1, late_s=0.05)) if kind == "iscsi" else rbd_data("volumes/image-1")
    return connect(kind, data)


def counted(name: str, kind: str, outcomes: Sequence[Outcome], commands: Sequence[Ran]) -> Ten:
    made = [each for each in commands if "--login" in each.argv or (each.argv[0] == "rbd" and "map" in each.argv)]
    good = [outcome.value for outcome in outcomes if not outcome.error]
    errors = sorted({outcome.error for outcome in outcomes if outcome.error})
    return Ten(name, kind, len(made), len(good), len(set(good)), tuple(errors))


def summarise(found: Sequence[Ten]) -> Part:
    bars = []
    for each in found:
        if each.library == OURS:
            wanted = (PROCESSES, 1)
            said = f"{each.answers} answers, {each.different} different{''.join(f'; {text}' for text in each.errors)}"
            require((each.answers, each.different) == wanted, f"ten processes, one volume over {each.kind}: {said}")
            peers = [other for other in found if other.library == BRICK and other.kind == each.kind]
            beside = "".join(f"os-brick {other.attaches}, with {other.answers} answers" for other in peers)
            name = f"ten processes connect one {each.kind} volume at once: attaches"
            bars.append(Bar(name, float(each.attaches), "at most", 1.0, "attaches", beside))
    rows = tuple(
        (each.kind, each.library, str(each.attaches), str(each.answers), str(each.different)) for each in found
    )
    header = ("volume", "library", "logins or maps", "answers", "different answers")
    return Part(tuple(bars), (Table("Ten processes connect one volume at once", header, rows),))
