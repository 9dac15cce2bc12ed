"""What stands behind a Lease object: a key that is there only while the holder keeps it alive.

The key holds epoch and holder and changes only when these do, so a fenced write can compare it while renewals go on.
It is attached to a lease of the key-value store: by that store's own clock it goes when the holder stops renewing.
"""

from __future__ import annotations

from quartermaster.resources import Lease
from quartermaster.resources.codec import Document
from quartermaster.resources.kind import Kind, kind_of
from quartermaster.stores.base import Fence
from quartermaster.stores.kv.base import KeyValue, Operation, Put, Remove
from quartermaster.stores.objects.keys import held_key

_DEFAULT_DURATION_S = 15


def held_value(fence: Fence) -> bytes:
    return _value(fence.epoch, fence.holder)


class LeaseHolder:
    """The key-value leases that this process keeps, one for each Lease object that it writes."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._held: dict[str, tuple[int, int]] = {}  # key → (lease, duration)

    def concerns(self, kind: Kind) -> bool:
        return kind is kind_of(Lease)

    async def operations(self, kind: Kind, document: Document) -> list[Operation]:
        """What to write together with the Lease `document`; nothing for other kinds."""
        if not self.concerns(kind):
            return []
        meta, spec = document["metadata"], document.get("spec")
        if not isinstance(spec, dict):  # stored like that by another program, and now being deleted
            spec = {}
        key = held_key(kind, meta.get("namespace", ""), meta["name"])
        holder = spec.get("holderIdentity") or ""
        if not holder:
            self.forget(key)
            return [Remove(key)]
        duration = spec.get("leaseDurationSeconds") or _DEFAULT_DURATION_S
        return [Put(key, _value(spec.get("leaseTransitions") or 0, holder), lease=await self._keep(key, duration))]

    def forget(self, key: str) -> None:
        """Nobody holds it any more, or what stood behind it has ended."""
        self._held.pop(key, None)

    async def _keep(self, key: str, duration: int) -> int:
        lease, granted = self._held.get(key, (0, 0))
        if granted == duration and await self._kv.keep_alive(lease):
            return lease
        lease = await self._kv.grant(duration)
        self._held[key] = (lease, duration)
        return lease


def _value(epoch: int, holder: str) -> bytes:
    return f"{epoch} {holder}".encode()
