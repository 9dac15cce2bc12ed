"""A candidate in a process of its own, to be killed or stopped: it stands for election, and counts while it leads.

    python -m tests.faults.candidate STORE_URL LEASE NAME LEASE_S RETRY_S

LEASE is also the name of the counter. A line is printed for every thing that happens, with the time of a clock that all
processes share. The counter is written with the term's fence and without asking the leadership whether it still holds:
what refuses a deposed leader here is the store alone (on Kubernetes, which compares no fence, our client of it in the
moment of sending). When a term was lost, one more write is tried with its fence, after everything that watches the term
by this process's own clock has ended.
"""

import asyncio
import sys
import time

from msgspec.structs import replace

from quartermaster.engine.election import Election, Leadership
from quartermaster.resources import ConfigMap, Lease, ObjectMeta
from quartermaster.stores import Fence, Store, modify, open_store
from quartermaster.support.errors import AlreadyExistsError, FencedError


def tell(*words: object) -> None:
    print(f"{time.monotonic():.3f}", *words, flush=True)


async def count(store: Store, counter: str, fence: Fence) -> None:
    """One more. `history` has the epochs in the order of their writes, each once for as long as no other writes."""

    def one_more(found: ConfigMap) -> ConfigMap:
        history = found.data["history"].split()
        if history[-1:] != [str(fence.epoch)]:
            history.append(str(fence.epoch))
        return replace(found, data={"count": str(int(found.data["count"]) + 1), "history": " ".join(history)})

    await modify(store, ConfigMap, counter, "default", one_more, fence=fence)


class Candidate(Election):
    """Tells each of its attempts, so that nobody takes the start of the process for a part of the failover."""

    async def _attempt(self) -> tuple[Lease, Leadership] | None:
        won = await super()._attempt()
        tell("stood")
        return won


async def lead(store: Store, election: Election, counter: str, fences: list[Fence]) -> None:
    async with election.leading() as leadership:
        fences.append(leadership.fence)
        tell("leads", leadership.fence.epoch)
        while True:
            await count(store, counter, leadership.fence)
            tell("counted")
            await asyncio.sleep(0.01)  # a pipe that nobody reads must not fill up and stop the leader


async def stand(url: str, lease: str, name: str, lease_s: int, retry_s: float) -> None:
    store = await open_store(url)
    try:
        meta = ObjectMeta(name=lease, namespace="default")
        await store.create(ConfigMap(metadata=meta, data={"count": "0", "history": ""}))
    except AlreadyExistsError:
        tell("found the counter")
    election = Candidate(store, name=lease, identity=name, lease_s=lease_s, retry_s=retry_s)
    fences: list[Fence] = []
    while True:
        try:
            await lead(store, election, lease, fences)
        except FencedError as error:
            tell("lost", str(error).replace("\n", " "))
        try:
            await count(store, lease, fences[-1])
            tell("late write accepted")
        except FencedError as error:
            tell("late write refused:", str(error).replace("\n", " "))


if __name__ == "__main__":
    asyncio.run(stand(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
