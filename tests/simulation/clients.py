"""What the ten clients do: count, create, change and delete; and, some of them, keep mirrors of what there is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from quartermaster.engine.cache import Cache
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Key, Object, ObjectMeta
from quartermaster.resources.storage import StorageNode, StorageNodeSpec
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import kind_prefix
from quartermaster.support import entropy
from quartermaster.support.errors import ExpiredError, StoreError, UnavailableError
from quartermaster.testing.simulation import record

from .invariants import ORDER, Witness

NAMESPACE = "default"
COUNTER_NAMES = ("counter-a", "counter-b")
TOTAL = "total"
Mirror = Callable[[], dict[Key, str]]


class Ledger:
    """What the clients know to have happened and what may have."""

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}  # increments that were not refused
        self.confirmed: dict[str, int] = {}


class Client:
    """One incarnation of one client."""

    def __init__(self, name: str, store: ObjectStore, witness: Witness, ledger: Ledger) -> None:
        self._name = name
        self._store = store
        self._witness = witness
        self._ledger = ledger

    async def work(self, mean_gap_s: float, enough: asyncio.Event) -> None:
        """Do something now and then."""
        source = entropy.source()
        actions = (self._increment, self._increment, self._create, self._change, self._delete)
        while not enough.is_set():
            await asyncio.sleep(source.expovariate(1 / mean_gap_s))
            action = source.choice(actions)
            try:
                async with asyncio.timeout(5):
                    await action()
            except (StoreError, TimeoutError) as error:
                record("gave up", action.__name__, type(error).__name__)

    async def _increment(self) -> None:
        counter = entropy.source().choice(COUNTER_NAMES)
        current = await self._store.get(ConfigMap, counter, NAMESPACE)
        number = int(current.data.get(self._name, "0")) + 1
        total = int(current.data.get(TOTAL, "0")) + 1
        key = f"{counter}/{self._name}"
        self._ledger.attempts[key] = self._ledger.attempts.get(key, 0) + 1
        try:
            await self._store.update(
                replace(current, data={**current.data, self._name: str(number), TOTAL: str(total)})
            )
        except StoreError as error:
            if not isinstance(error, UnavailableError):
                self._ledger.attempts[key] -= 1
            raise
        self._ledger.confirmed[key] = self._ledger.confirmed.get(key, 0) + 1

    async def _create(self) -> None:
        meta = ObjectMeta(name=self._node_name(), namespace=NAMESPACE)
        await self._store.create(StorageNode(metadata=meta, spec=StorageNodeSpec(type="local", devices=("/dev/vdb",))))

    async def _change(self) -> None:
        node = await self._store.get(StorageNode, self._node_name(), NAMESPACE)
        devices = (f"/dev/vd{entropy.source().choice('cdefgh')}",)
        await self._store.update(replace(node, spec=replace(node.spec, devices=devices)))

    async def _delete(self) -> None:
        await self._store.delete(StorageNode, self._node_name(), NAMESPACE)

    def _node_name(self) -> str:
        return f"{self._name}-{entropy.source().choice('ab')}"


class CountingWatcher:
    """A mirror by hand: list, watch, resume, list again; and each revision must come once and in order."""

    def __init__(self, store: ObjectStore, kind: type[Object], witness: Witness) -> None:
        self._store = store
        self._kind = kind
        self._prefix = kind_prefix(kind_of(kind))
        self._witness = witness
        self._seen = ""
        self._mirror: dict[Key, str] = {}

    def content(self) -> dict[Key, str]:
        return dict(self._mirror)

    async def run(self) -> None:
        while True:
            try:
                if not self._seen:
                    page = await self._store.list(self._kind, NAMESPACE)
                    self._mirror = {obj.key: obj.metadata.resource_version for obj in page.items}
                    self._seen = page.revision
                await self._watch()
            except ExpiredError:
                record("relist")
                self._seen = ""
            except UnavailableError:
                record("resume", self._seen)
                await asyncio.sleep(0.5)

    async def _watch(self) -> None:
        async with contextlib.aclosing(self._store.watch(self._kind, NAMESPACE, since=self._seen)) as events:
            async for event in events:
                expected = self._witness.expected_after(self._prefix, int(self._seen))
                came = int(event.revision)
                right = came == expected if event.object is not None else expected is None or expected > came
                if not right:
                    self._witness.violated(ORDER, f"{event.type} {came} came where {expected} was due")
                self._seen = event.revision
                if event.object is not None:
                    self._note(event.type, event.object)

    def _note(self, kind: str, obj: Object) -> None:
        if kind == "DELETED":
            self._mirror.pop(obj.key, None)
        else:
            self._mirror[obj.key] = obj.metadata.resource_version


def cache_content(cache: Cache[StorageNode]) -> Mirror:
    return lambda: {obj.key: obj.metadata.resource_version for obj in cache.list()}
