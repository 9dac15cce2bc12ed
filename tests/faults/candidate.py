"""A candidate in a process of its own, to be killed or stopped: it stands for election, and counts while it leads.

    python -m tests.faults.candidate STORE_URL NAME LEASE_S RETRY_S

It prints a line for every thing that happens, with the time of a clock that all processes share. The counter is
written with the term's fence and without asking the leadership whether it still holds: what refuses a deposed leader
here is the store alone.
"""

import asyncio
import sys
import time

from msgspec.structs import replace

from quartermaster.engine.election import Election
from quartermaster.resources import ConfigMap, ObjectMeta
from quartermaster.stores import Fence, Store, modify, open_store
from quartermaster.support.errors import AlreadyExistsError, FencedError

COUNTER = "counter"


def tell(*words: object) -> None:
    print(f"{time.monotonic():.3f}", *words, flush=True)


async def count(store: Store, fence: Fence) -> None:
    """One more, for ever; the end comes from outside or by the fence."""

    def one_more(counter: ConfigMap) -> ConfigMap:
        value = int(counter.data["count"]) + 1
        return replace(counter, data={"count": str(value), "epoch": str(fence.epoch)})

    while True:
        await modify(store, ConfigMap, COUNTER, "default", one_more, fence=fence)
        tell("counted")


async def stand(url: str, name: str, lease_s: int, retry_s: float) -> None:
    store = await open_store(url)
    try:
        await store.create(ConfigMap(metadata=ObjectMeta(name=COUNTER), data={"count": "0", "epoch": "0"}))
    except AlreadyExistsError:
        tell("found the counter")
    election = Election(store, name="fault", identity=name, lease_s=lease_s, retry_s=retry_s)
    while True:
        try:
            async with election.leading() as leadership:
                tell("leads", leadership.fence.epoch)
                await count(store, leadership.fence)
        except FencedError as error:
            tell("refused", str(error).replace("\n", " "))


if __name__ == "__main__":
    asyncio.run(stand(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
