"""`KeyValue` on etcd: its words put into etcd's."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator, Sequence

from quartermaster.stores.kv.base import Batch, Compare, Entry, Operation, Outcome, Put, Range, Written
from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.members import READ_ATTEMPT_S, Members, Method
from quartermaster.stores.kv.etcd.settings import DEADLINE_S, Settings, parse
from quartermaster.stores.kv.etcd.watching import watch
from quartermaster.support.errors import ExpiredError, NotFoundError, RefusedError

CHUNK = 500  # keys in one response
OPERATIONS_LIMIT = 128  # etcd's default --max-txn-ops

_RANGE = Method("/etcdserverpb.KV/Range", rpc.RangeResponse, READ_ATTEMPT_S, reads=True)
_TRANSACT = Method("/etcdserverpb.KV/Txn", rpc.TxnResponse)
_COMPACT = Method("/etcdserverpb.KV/Compact", rpc.CompactionResponse)
_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantResponse)
_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", rpc.LeaseRevokeResponse)
# A stream to etcd, of which one request and one response are used: on the wire that is a plain call.
_KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", rpc.LeaseKeepAliveResponse)


def connect(target: str | Settings, *, deadline_s: float = DEADLINE_S) -> EtcdKeyValue:
    """A store at a URL (see `settings`). Nothing is sent until the first call; wrong settings are refused here."""
    settings = parse(target, os.environ, deadline_s=deadline_s) if isinstance(target, str) else target
    return EtcdKeyValue(settings)


class EtcdKeyValue:
    """See `KeyValue` for the contract. Keys start with a slash: the prefix is put before them as it is.

    A transaction whose attempt was lost is sent again. It happens once if a condition of it no longer holds after it
    happened, as with the usual "modified" of a key that it writes; else it may happen twice.
    """

    def __init__(self, settings: Settings) -> None:
        self._prefix = settings.prefix
        self._prefix_size = len(settings.prefix.encode())
        self._members = Members(settings)

    @property
    def url(self) -> str:
        return self._members.settings.url

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The members that serve, as far as they are known."""
        return self._members.endpoints

    async def revision(self) -> int:
        # An empty transaction is answered by any member from what it knows itself, which may be old.
        request = rpc.RangeRequest(key=self._encode("/"), limit=1, keys_only=True)
        response, _ = await self._members.call(_RANGE, request, "read the revision")
        return response.header.revision

    async def get(self, key: str) -> Entry | None:
        response, _ = await self._members.call(_RANGE, rpc.RangeRequest(key=self._encode(key)), f"read {key}")
        return self._entry(response.kvs[0]) if response.kvs else None

    async def range(self, start: str, end: str, *, limit: int = 0, revision: int = 0) -> Range:
        entries: list[Entry] = []
        request = rpc.RangeRequest(key=self._encode(start), range_end=self._encode(end), revision=revision)
        while True:
            request.limit = min(CHUNK, limit - len(entries)) if limit else CHUNK
            try:
                response, _ = await self._members.call(_RANGE, request, f"list {start}")
            except ExpiredError:
                if revision or limit or not entries:
                    raise
                # Compacted while it was read in parts, and any moment will do: all of it in one response.
                entries = []
                whole = rpc.RangeRequest(key=self._encode(start), range_end=self._encode(end))
                response, _ = await self._members.call(_RANGE, whole, f"list {start}")
                request.revision = response.header.revision
            entries.extend(self._entry(found) for found in response.kvs)
            if not request.revision:
                request.revision = response.header.revision
            if not response.more or (limit and len(entries) >= limit):
                return Range(tuple(entries), response.more, request.revision)
            request.key = response.kvs[-1].key + b"\0"

    async def written(self, start: str, end: str, *, after: int = 0) -> Written:
        request = rpc.RangeRequest(
            key=self._encode(start), range_end=self._encode(end), keys_only=True, min_mod_revision=after + 1
        )
        response, _ = await self._members.call(_RANGE, request, f"list {start}")
        return Written({self._decode(one.key): one.mod_revision for one in response.kvs}, response.header.revision)

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        action = f"write {operations[0].key}" if operations else "compare"
        if max(len(compares), len(operations)) > OPERATIONS_LIMIT:
            raise RefusedError(
                f"cannot {action}: {len(operations)} operations under {len(compares)} conditions in one transaction",
                hint=f"etcd takes {OPERATIONS_LIMIT} of each",
            )
        keys = list(dict.fromkeys(compare.key for compare in compares))
        request = rpc.TxnRequest(
            compare=[self._compare(compare) for compare in compares],
            success=[self._operation(operation) for operation in operations],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=self._encode(key))) for key in keys],
        )
        response, repeated = await self._members.call(_TRANSACT, request, action)
        revision = response.header.revision
        if response.succeeded:
            return Outcome(succeeded=True, revision=revision, repeated=repeated)
        found = [answer.response_range.kvs for answer in response.responses]
        current = {key: self._entry(kvs[0]) if kvs else None for key, kvs in zip(keys, found, strict=True)}
        return Outcome(succeeded=False, revision=revision, current=current, repeated=repeated)

    def watch(self, start: str, end: str, *, after: int) -> AsyncGenerator[Batch, None]:
        return watch(self._members, self._encode(start), self._encode(end), after, self._decode)

    async def grant(self, ttl_s: float) -> int:
        request = rpc.LeaseGrantRequest(TTL=max(1, math.ceil(ttl_s)))
        response, _ = await self._members.call(_GRANT, request, "grant a lease")
        return response.ID

    async def keep_alive(self, lease: int) -> bool:
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        response, _ = await self._members.call(_KEEP_ALIVE, request, f"keep lease {lease} alive")
        return response.TTL > 0

    async def revoke(self, lease: int) -> None:
        try:
            await self._members.call(_REVOKE, rpc.LeaseRevokeRequest(ID=lease), f"revoke lease {lease}")
        except NotFoundError:
            return

    async def compact(self, revision: int) -> None:
        request = rpc.CompactionRequest(revision=revision)
        try:
            await self._members.call(_COMPACT, request, f"compact to revision {revision}")
        except ExpiredError:  # somebody went further already
            return

    async def close(self) -> None:
        await self._members.close()

    def _encode(self, key: str) -> bytes:
        # The end of a range may fall among the surrogates, which are no text but have their place in the order.
        return (self._prefix + key).encode("utf-8", "surrogatepass")

    def _decode(self, key: bytes) -> str:
        return key[self._prefix_size :].decode()

    def _entry(self, found: rpc.KeyValue) -> Entry:
        return Entry(self._decode(found.key), found.value, found.create_revision, found.mod_revision)

    def _compare(self, compare: Compare) -> rpc.Compare:
        key = self._encode(compare.key)
        if compare.modified is not None:
            return rpc.Compare(key=key, target=rpc.Compare.MOD, mod_revision=compare.modified)
        return rpc.Compare(key=key, target=rpc.Compare.VALUE, value=compare.value)

    def _operation(self, operation: Operation) -> rpc.RequestOp:
        key = self._encode(operation.key)
        if isinstance(operation, Put):
            put = rpc.PutRequest(key=key, value=operation.value, lease=operation.lease)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
