"""What scenarios with leaders and agents share: who leads and who serves, calls that fail, and waiting for rest."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from quartermaster.backends.base import Backend
from quartermaster.engine.metrics import Metrics
from quartermaster.host import Host
from quartermaster.host.fake import Moment
from quartermaster.operators.assembly import operator_runtime
from quartermaster.orchestration.agent import AgentRuntime
from quartermaster.orchestration.timings import Timings
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import entropy
from quartermaster.testing.simulation import Chaos, record
from quartermaster.testing.simulation.process import PROCESS

from .hosts import WitnessedMachine, gather_facts
from .invariants import NAMESPACE, QUIET, Witness

LEASE_S = 7
RETRY_S = 2.0
LEADERS = ("leader-0", "leader-1")
_METRICS = Metrics(enabled=False)

Wrong = tuple[str, str] | None  # the invariant that does not hold, and why


@contextmanager
def state_directory() -> Iterator[Path]:
    """What agents keep in one run: in memory where the machine offers it, for they sync each of many small files."""
    quick = "/dev/shm" if Path("/dev/shm").is_dir() else None
    made = Path(tempfile.mkdtemp(prefix="simulated-", dir=quick))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def lead(kv: MemoryKeyValue, witness: Witness, name: str, backend: Backend, timings: Timings) -> None:
    """An operator that leads or wants to; whoever is started again is somebody else."""
    runtime = operator_runtime(
        ObjectStore(kv, manager="quartermaster"),
        namespace=NAMESPACE,
        backends=[backend],
        timings=timings,
        identity=f"{name}-{len(witness.leaders) + 1}",
        lease_s=LEASE_S,
        retry_s=RETRY_S,
        metrics=_METRICS,
    )
    process = PROCESS.get()
    assert process is not None
    witness.leaders[process] = runtime
    await runtime.run()


def agent_of(
    kv: MemoryKeyValue, name: str, host: Host, backend: Backend, timings: Timings, directory: Path, address: str
) -> AgentRuntime:
    return AgentRuntime(
        ObjectStore(kv, manager=name),
        name,
        host,
        backend.agents(),
        namespace=NAMESPACE,
        directory=directory / name,
        addresses=(address,),
        timings=timings,
        facts=gather_facts,
        metrics=_METRICS,
    )


class HostTrouble:
    """Calls of the host layer that fail at random, before or after their effect."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.count = 0
        self.directory = Path()  # where agents keep their state; it has another name in every run

    def __call__(self, _number: int, name: str) -> Moment | None:
        if entropy.source().random() >= self.rate:
            return None
        self.count += 1
        record("host fault", name.replace(str(self.directory), "STATE"))
        return entropy.source().choice(list(Moment))


async def settle(
    witness: Witness,
    what: Callable[[], Awaitable[Wrong]],
    patience_s: float,
    *,
    pause_s: float = RETRY_S,
    tell: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Wait until nothing is wrong any more; after a while, `tell` all there is to know, and say what is wrong."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while wrong := await what():
        witness.raise_violation()
        if asyncio.get_running_loop().time() > deadline:
            if tell is not None:
                await tell()
            witness.violated(*wrong)
        witness.raise_violation()
        await asyncio.sleep(pause_s)
    record("settled")


async def check_second_run(
    chaos: Chaos,
    witness: Witness,
    machines: Mapping[str, WitnessedMachine],
    wait_s: float,
    *,
    beside: Sequence[str] = (),
) -> None:
    """New agents on unchanged hosts, and every configuration runs again: nothing changes and nothing is written but
    for objects whose key has one of `beside` in it.
    """
    before = {name: machine.acts() for name, machine in machines.items()}
    writes = len(witness.trace)
    for name in machines:
        chaos.processes[name].kill()
        await chaos._restart(name, 0.1)
    await asyncio.sleep(wait_s)
    for name, machine in machines.items():
        now = machine.acts()
        if changed := {what: (before[name][what], now[what]) for what in now if now[what] != before[name][what]}:
            witness.violated(QUIET, f"on {name}: {changed}")
    if written := written_since(witness, writes, beside):
        witness.violated(QUIET, f"{written}")
    witness.raise_violation()


def written_since(witness: Witness, writes: int, beside: Sequence[str] = ()) -> Sequence[tuple[str, str]]:
    return [one for one in witness.trace[writes:] if not any(part in one[1] for part in beside)]
