"""A process that is the core, and sends itself SIGKILL after its n-th write: `python -m tests.cstor.dying_controller`.

With 0 it lives until it is told to end. Who leads is not asked: the next one shall not have to wait for a Lease.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any

from quartermaster.backends.cstor import HOOKS
from quartermaster.engine import Runtime
from quartermaster.hooks import hook_controllers
from quartermaster.stores.opening import open_store
from quartermaster.support import log

from .world import WRITES


class Deadly:
    """A store that kills its process after the n-th write, before anybody learns of it."""

    def __init__(self, store: Any, dies_after: int) -> None:
        self._store = store
        self._dies_after = dies_after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in WRITES:
            return found

        async def write(*arguments: Any, **options: Any) -> Any:
            result = await found(*arguments, **options)
            if type(result).__name__ != "Event":
                self.writes += 1
                if self.writes == self._dies_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        return write


async def main(url: str, dies_after: int) -> None:
    store = await open_store(url)
    deadly: Any = Deadly(store, dies_after)
    try:
        runtime = Runtime(deadly, signals=True)
        for controller in hook_controllers(HOOKS):
            runtime.add(controller)
        await runtime.run()
    finally:
        await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--dies-after", type=int, default=0)
    arguments = parser.parse_args()
    log.configure(verbosity=-1)
    asyncio.run(main(arguments.store, arguments.dies_after))
