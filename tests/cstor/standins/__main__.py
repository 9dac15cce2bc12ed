"""The stand-ins as a process: `python -m tests.cstor.standins --store URL`. What OpenEBS refuses is printed."""

from __future__ import annotations

import argparse
import asyncio

from quartermaster.engine import Runtime
from quartermaster.stores.opening import open_store
from quartermaster.support import log
from tests.cstor.standins.together import standins


class Shouting(list[str]):
    def append(self, line: str) -> None:
        print(line, flush=True)
        super().append(line)


async def main(url: str, *, binds: bool) -> None:
    store = await open_store(url)
    runtime = Runtime(store, signals=True)
    for service in standins(binds=binds, refused=Shouting()):
        runtime.add(service)
    try:
        await runtime.run()
    finally:
        await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--binds", action="store_true", help="bind claims too: no controller manager runs there")
    arguments = parser.parse_args()
    log.configure(verbosity=-1)
    asyncio.run(main(arguments.store, binds=arguments.binds))
