"""Label every StorageNode with the number of its devices, and keep it so: python reconciler.py [STORE-URL]"""

import asyncio
import sys

from msgspec.structs import replace

from quartermaster.engine import DONE, Controller, Request, Result, Runtime, Scope
from quartermaster.resources import ObjectMeta, StorageNode
from quartermaster.resources.storage import StorageNodeSpec
from quartermaster.stores import open_store

LABEL = "example.com/devices"


class CountDevices:
    def __init__(self, scope: Scope) -> None:
        self._store = scope.store
        self._nodes = scope.caches.of(StorageNode)

    async def reconcile(self, request: Request) -> Result:
        node = self._nodes.get(request)
        if node is None:
            return DONE
        wanted = {**node.metadata.labels, LABEL: str(len(node.spec.devices))}
        if node.metadata.labels != wanted:
            await self._store.update(replace(node, metadata=replace(node.metadata, labels=wanted)))
            print(f"{request}: {LABEL}={wanted[LABEL]}", flush=True)
        return DONE


async def main(url: str) -> None:
    store = await open_store(url)
    runtime = Runtime(store, signals=True)
    runtime.add(Controller("count-devices", StorageNode, CountDevices))
    if url == "memory:":  # nobody else can put anything into it
        spec = StorageNodeSpec(type="local", devices=("/dev/vdb", "/dev/vdc"))
        await store.create(StorageNode(metadata=ObjectMeta(name="rack-1-a", namespace="default"), spec=spec))
    await runtime.run()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory:"))
