"""What must always be true, and who notices when it is not.

The `Witness` is told of every write at the moment at which it took effect, before anybody else can act, so it knows
what really happened, whatever the processes believe. Each invariant has a name; a test of a mutant asks for it.
"""

from __future__ import annotations

from bisect import bisect_right

from quartermaster.engine.election import Leadership
from quartermaster.resources.codec import Document, decode_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap, Lease
from quartermaster.resources.storage import StorageNode
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects.keys import held_key, kind_prefix
from quartermaster.testing.simulation import Process, SeededFaults, record
from quartermaster.testing.simulation.allocator import EPOCH
from quartermaster.testing.simulation.process import PROCESS

FENCED = "no write of a deposed leader is accepted"
ONE_LEADER = "no two leaders hold the lead at once"
NO_LOST_UPDATE = "no update is lost"
ORDER = "a watcher sees every revision once and in order"
MIRROR = "a mirror ends equal to the store, deletions included"
ONE_EFFECT = "nothing is done twice in the world"
NO_LEAK = "nothing is left over in the world"
CONVERGES = "everything converges after the faults stop"
FAILOVER = "the next leader leads within the lease and one retry"

NODES = kind_prefix(kind_of(StorageNode))
COUNTERS = kind_prefix(kind_of(ConfigMap))
HELD = held_key(kind_of(Lease), "default", "leader")


class ViolationError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Witness:
    """The `Faults` of the store: those of the seed, and a look at each write."""

    def __init__(self, kv: MemoryKeyValue, faults: SeededFaults) -> None:
        self.violation: ViolationError | None = None
        self.history: dict[str, list[int]] = {NODES: [], COUNTERS: []}  # the revisions of each kind
        self.leaderships: dict[Process[None], Leadership] = {}
        self._kv = kv
        self._faults = faults
        self._revision = 1
        self._counts: dict[str, Document] = {}
        self._holder_of: dict[int, str] = {}
        kv.faults = self

    async def before(self, call: str, key: str) -> None:
        await self._faults.before(call, key)

    async def after(self, call: str, key: str) -> None:
        await self._look(key)
        await self._faults.after(call, key)

    async def deliver(self, key: str) -> None:
        await self._faults.deliver(key)

    def violated(self, invariant: str, detail: str) -> None:
        """Note the first violation, in whichever process it was noticed; the scenario ends with it."""
        if self.violation is None:
            self.violation = ViolationError(invariant, detail)
            record("violation", str(self.violation))

    def raise_violation(self) -> None:
        if self.violation is not None:
            raise self.violation

    def expected_after(self, prefix: str, seen: int) -> int | None:
        """The next revision that a watcher which has seen `seen` must see."""
        revisions = self.history[prefix]
        position = bisect_right(revisions, seen)
        return revisions[position] if position < len(revisions) else None

    async def _look(self, key: str) -> None:
        revision = await self._kv.revision()
        if revision == self._revision:
            return
        self._revision = revision
        record("write", revision, key)
        self._check_leaders()
        for prefix, revisions in self.history.items():
            if key.startswith(prefix):
                revisions.append(revision)
        value = self._value(key)
        if key.startswith(NODES):
            self._check_fence(key, value)
        elif key.startswith(COUNTERS) and value is not None:
            self._check_counts(key, value)

    def _value(self, key: str) -> Document | None:
        entry = self._kv._entries.get(key)
        return decode_document(entry.value) if entry is not None else None

    def _check_leaders(self) -> None:
        holding = [process.name for process, leadership in self.leaderships.items() if leadership.holds]
        if len(holding) > 1:
            self.violated(ONE_LEADER, f"{' and '.join(holding)} both do")

    def _check_fence(self, key: str, value: Document | None) -> None:
        """A write to a node from a leader's process needs that leader to be the holder at this very moment."""
        process = PROCESS.get()
        leadership = self.leaderships.get(process) if process is not None else None
        if leadership is None or self._faults.overtaking:
            return
        entry = self._kv._entries.get(HELD)
        held = entry.value.decode() if entry is not None else "nobody"
        fence = leadership.fence
        if held != f"{fence.epoch} {fence.holder}":
            self.violated(FENCED, f"{fence} wrote {key}, held by {held}")
        known = self._holder_of.setdefault(fence.epoch, fence.holder)
        if known != fence.holder:
            self.violated(FENCED, f"{known} and {fence.holder} both wrote in epoch {fence.epoch}")
        stamp = int(((value or {}).get("metadata", {}).get("annotations") or {}).get(EPOCH, fence.epoch))
        if stamp > fence.epoch:
            self.violated(FENCED, f"epoch {fence.epoch} wrote {key}, which epoch {stamp} had written")

    def _check_counts(self, key: str, value: Document) -> None:
        old, new = self._counts.get(key, {}), value.get("data") or {}
        self._counts[key] = new
        for client, number in old.items():
            if int(new.get(client, 0)) < int(number):
                self.violated(NO_LOST_UPDATE, f"{key}: {client} fell back from {number}")
