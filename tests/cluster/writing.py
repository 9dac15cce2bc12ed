"""`python -m tests.cluster.writing FILE`: writes on a virtual host as fast as etcd answers, and keeps FILE up to date.

FILE says how often it has written, and how long it ever had to wait: without a majority nobody can write.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from quartermaster.host.files import write_whole
from quartermaster.orchestration.joining.access import read_access
from quartermaster.resources import ConfigMap, ObjectMeta
from quartermaster.stores import modify, open_store

PAUSE_S = 0.05


class Written(msgspec.Struct, frozen=True):
    times: int = 0
    longest_s: float = 0.0


def counted(found: ConfigMap) -> ConfigMap:
    return replace(found, data={"n": str(int(found.data.get("n", "0")) + 1)})


async def main(file: Path) -> None:
    access = read_access(Path(os.environ["QM_STATE_DIR"]))
    assert access is not None
    store = await open_store(access.leader_url)
    await store.create(ConfigMap(metadata=ObjectMeta(name="counter", namespace="default")))
    loop = asyncio.get_running_loop()
    written = Written()
    while True:
        began = loop.time()
        await modify(store, ConfigMap, "counter", "default", counted)
        written = Written(written.times + 1, max(written.longest_s, loop.time() - began))
        write_whole(file, msgspec.json.encode(written))
        await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
