"""The real etcd behind `EtcdTool`, over the connections that the store uses as well."""

from __future__ import annotations

from typing import TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from quartermaster.backends.etcd.tool import Alarm, EtcdMember, EtcdStatus, RaisedAlarm
from quartermaster.stores.kv.etcd import Settings
from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.failures import Failure, refusal
from quartermaster.stores.kv.etcd.members import Member, Members, Method, serving_endpoints
from quartermaster.support.errors import ExpiredError, RefusedError, UnavailableError

Response = TypeVar("Response", bound=Message)
STATUS_S = 2.0
DEFRAGMENT_S = 60.0
COMPACT_S = 60.0

_LIST = Method("/etcdserverpb.Cluster/MemberList", rpc.MemberListResponse)
_ADD = Method("/etcdserverpb.Cluster/MemberAdd", rpc.MemberAddResponse)
_REMOVE = Method("/etcdserverpb.Cluster/MemberRemove", rpc.MemberListResponse)
_PROMOTE = Method("/etcdserverpb.Cluster/MemberPromote", rpc.MemberListResponse)
_STATUS = Method("/etcdserverpb.Maintenance/Status", rpc.StatusResponse)
_DEFRAGMENT = Method("/etcdserverpb.Maintenance/Defragment", rpc.DefragmentResponse)
_ALARM = Method("/etcdserverpb.Maintenance/Alarm", rpc.AlarmResponse)
_COMPACT = Method("/etcdserverpb.KV/Compact", rpc.CompactionResponse, COMPACT_S)
_READ = Method("/etcdserverpb.KV/Txn", rpc.TxnResponse)
_ALARMS = {rpc.NOSPACE: Alarm.NO_SPACE, rpc.CORRUPT: Alarm.CORRUPT}
_NUMBERS = {alarm: number for number, alarm in _ALARMS.items()}


class EtcdClient:
    """See `EtcdTool`. Needs the rights of a leader."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._members = Members(settings)
        self._single: dict[str, Members] = {}

    async def members(self) -> tuple[EtcdMember, ...]:
        response, _ = await self._members.call(_LIST, rpc.MemberListRequest(linearizable=True), "list the members")
        return _listed(response)

    async def add_learner(self, peer_url: str) -> EtcdMember:
        request = rpc.MemberAddRequest(peer_urls=[peer_url], is_learner=True)
        try:
            response, _ = await self._members.call(_ADD, request, f"add the member {peer_url}")
        except RefusedError as error:
            if "Peer URLs already exists" not in error.message:
                raise
            known = [member for member in await self.members() if peer_url in member.peer_urls]
            if not known:
                raise
            return known[0]
        return _member(response.member)

    async def promote(self, member: int) -> bool:
        try:
            await self._members.call(_PROMOTE, rpc.MemberPromoteRequest(ID=member), f"promote the member {member:x}")
        except RefusedError as error:
            if "in sync with leader" in error.message:
                return False
            if "can only promote a learner" not in error.message:
                raise
        return True

    async def remove(self, member: int) -> None:
        try:
            await self._members.call(_REMOVE, rpc.MemberRemoveRequest(ID=member), f"remove the member {member:x}")
        except RefusedError as error:
            if "member not found" not in error.message:
                raise

    async def status(self, client_url: str) -> EtcdStatus | None:
        try:
            found = await self._at(client_url).unary(_STATUS, rpc.StatusRequest(), STATUS_S)
        except grpc.aio.AioRpcError:
            return None
        return EtcdStatus(
            id=found.header.member_id,
            version=found.version,
            size=found.db_size,
            in_use=found.db_size_in_use,
            leader=found.leader,
            index=found.raft_index,
            applied=found.raft_applied_index,
        )

    async def revision(self) -> int:
        response, _ = await self._members.call(_READ, rpc.TxnRequest(), "read the revision")
        return response.header.revision

    async def compact(self, revision: int) -> None:
        request = rpc.CompactionRequest(revision=revision, physical=True)
        try:
            await self._members.call(_COMPACT, request, f"compact to revision {revision}")
        except ExpiredError:  # somebody went further already
            return

    async def defragment(self, client_url: str) -> None:
        try:
            await self._at(client_url).unary(_DEFRAGMENT, rpc.DefragmentRequest(), DEFRAGMENT_S)
        except grpc.aio.AioRpcError as error:
            failure = Failure.of(error)
            if failure.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise UnavailableError(f"cannot defragment {client_url}: {failure.text}") from error
            raise refusal(f"defragment {client_url}", failure) from error

    async def alarms(self) -> tuple[RaisedAlarm, ...]:
        request = rpc.AlarmRequest(action=rpc.AlarmRequest.GET, alarm=rpc.NONE)
        response, _ = await self._members.call(_ALARM, request, "list the alarms")
        known = [RaisedAlarm(_ALARMS[one.alarm], one.member_id) for one in response.alarms if one.alarm in _ALARMS]
        return tuple(sorted(known, key=lambda one: (one.alarm, one.member)))

    async def disarm(self, alarm: RaisedAlarm) -> None:
        request = rpc.AlarmRequest(
            action=rpc.AlarmRequest.DEACTIVATE, alarm=_NUMBERS[alarm.alarm], member_id=alarm.member
        )
        await self._members.call(_ALARM, request, f"disarm {alarm.alarm}")

    async def close(self) -> None:
        for members in [self._members, *self._single.values()]:
            await members.close()

    def _at(self, client_url: str) -> Member:
        """A connection to that member and no other."""
        address = client_url.partition("://")[2]
        if address not in self._single:
            alone = msgspec.structs.replace(self._settings, endpoints=(address,), sync=False)
            self._single[address] = Members(alone)
        return self._single[address].serving


def _listed(response: rpc.MemberListResponse) -> tuple[EtcdMember, ...]:
    return tuple(sorted((_member(one) for one in response.members), key=lambda member: member.id))


def _member(found: rpc.Member) -> EtcdMember:
    return EtcdMember(found.ID, found.name, tuple(found.peer_urls), tuple(found.client_urls), found.is_learner)


async def endpoints_known_to(settings: Settings, client_url: str) -> tuple[str, ...]:
    """Where that member says clients are served; none when it does not answer, or only learns."""
    alone = msgspec.structs.replace(settings, endpoints=(client_url.partition("://")[2],), sync=False, members="")
    members = Members(alone)
    try:
        answer = await members.serving.unary(_LIST, rpc.MemberListRequest(), STATUS_S)
    except grpc.aio.AioRpcError:
        return ()
    finally:
        await members.close()
    return tuple(serving_endpoints(answer))
