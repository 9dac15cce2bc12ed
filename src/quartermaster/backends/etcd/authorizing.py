"""The real etcd behind `EtcdUsers`, and how its guard is switched on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.message import Message

from quartermaster.backends.etcd.users import (
    HOSTS,
    ROOT,
    Permission,
    host_of_user,
    host_role,
    host_user,
    leader_user,
    leads_on,
    own_permissions,
    read_permissions,
)
from quartermaster.stores.kv.etcd import Settings
from quartermaster.stores.kv.etcd import rpc_pb2 as rpc
from quartermaster.stores.kv.etcd.members import Members, Method
from quartermaster.support.errors import RefusedError

_USERS = Method("/etcdserverpb.Auth/UserList", rpc.AuthUserListResponse)
_USER = Method("/etcdserverpb.Auth/UserGet", rpc.AuthUserGetResponse)
_ROLE = Method("/etcdserverpb.Auth/RoleGet", rpc.AuthRoleGetResponse)
_NOT_FOUND = "not found"
_THERE_ALREADY = "already exists"


class EtcdAuthorization:
    """See `EtcdUsers`. Needs the rights of a leader."""

    def __init__(self, settings: Settings, *, namespace: str) -> None:
        self._members = Members(settings)
        self._prefix = settings.prefix
        self._namespace = namespace

    async def ensure_host(self, host: str, joined: str) -> None:
        user = host_user(host, joined)
        await self._delete_users(one for one in await self.names() if host_of_user(one) == host and one != user)
        await self.ensure_role(host)
        await self._ensure_user(user, roles=(host_role(host), HOSTS))

    async def ensure_role(self, host: str) -> None:
        """Every change here makes calls of everybody that are on their way start anew: none is made without need."""
        await self._ensure_role(HOSTS, read_permissions(self._prefix, self._namespace))
        await self._ensure_role(host_role(host), own_permissions(self._prefix, self._namespace, host))

    async def ensure_leader(self, host: str, member: str) -> None:
        await self._ensure_role(ROOT, ())
        await self._ensure_user(leader_user(host, member), roles=(ROOT,))

    async def remove_host(self, host: str) -> None:
        await self._delete_users(one for one in await self.names() if host in (host_of_user(one), leads_on(one)))
        role = host_role(host)
        await self._do("RoleDelete", rpc.AuthRoleDeleteRequest(role=role), f"delete the role {role}", _NOT_FOUND)

    async def remove_leaders(self, host: str) -> None:
        await self._delete_users(one for one in await self.names() if leads_on(one) == host)

    async def names(self) -> tuple[str, ...]:
        response, _ = await self._members.call(_USERS, rpc.AuthUserListRequest(), "list the users")
        return tuple(sorted(response.users))

    async def enable(self, host: str, member: str) -> None:
        """From now on nobody gets in without a certificate that names a user. There is somebody who may do all."""
        await self._ensure_role(ROOT, ())
        await self._ensure_user(ROOT, roles=(ROOT,))
        await self.ensure_leader(host, member)
        await self._do("AuthEnable", rpc.AuthEnableRequest(), "enable access control", "")

    async def close(self) -> None:
        await self._members.close()

    async def _delete_users(self, users: Iterable[str]) -> None:
        for user in users:
            await self._do("UserDelete", rpc.AuthUserDeleteRequest(name=user), f"delete the user {user}", _NOT_FOUND)

    async def _ensure_user(self, user: str, *, roles: Sequence[str]) -> None:
        try:
            found, _ = await self._members.call(_USER, rpc.AuthUserGetRequest(name=user), f"read the user {user}")
            granted = list(found.roles)
        except RefusedError as error:
            if _NOT_FOUND not in error.message:
                raise
            add = rpc.AuthUserAddRequest(name=user, options=rpc.UserAddOptions(no_password=True))
            await self._do("UserAdd", add, f"add the user {user}", _THERE_ALREADY)
            granted = []
        for role in roles:
            if role not in granted:
                grant = rpc.AuthUserGrantRoleRequest(user=user, role=role)
                await self._do("UserGrantRole", grant, f"grant {role} to {user}", "already")

    async def _ensure_role(self, role: str, wanted: tuple[Permission, ...]) -> None:
        present = await self._permissions(role)
        if present is None:
            await self._do("RoleAdd", rpc.AuthRoleAddRequest(name=role), f"add the role {role}", _THERE_ALREADY)
        if role == ROOT:
            return  # it may do everything by its name
        known = present or frozenset()
        for gone in sorted(known - set(wanted)):
            request = rpc.AuthRoleRevokePermissionRequest(role=role, key=gone.key.encode(), range_end=gone.end.encode())
            await self._do("RoleRevokePermission", request, f"narrow the role {role}", _NOT_FOUND)
        for new in sorted(set(wanted) - known):
            kind = rpc.Permission.READWRITE if new.write else rpc.Permission.READ
            permission = rpc.Permission(type=kind, key=new.key.encode(), range_end=new.end.encode())
            grant = rpc.AuthRoleGrantPermissionRequest(name=role, perm=permission)
            await self._do("RoleGrantPermission", grant, f"widen the role {role}", "")

    async def _permissions(self, role: str) -> frozenset[Permission] | None:
        """What a role may; None where there is no such role."""
        try:
            found, _ = await self._members.call(_ROLE, rpc.AuthRoleGetRequest(role=role), f"read the role {role}")
        except RefusedError as error:
            if _NOT_FOUND not in error.message:
                raise
            return None
        return frozenset(_permission(one) for one in found.perm)

    async def _do(self, procedure: str, request: Message, action: str, harmless: str) -> None:
        """`harmless` is what the answer says when it had been done before."""
        method = Method(f"/etcdserverpb.Auth/{procedure}", rpc.Acknowledgement)
        try:
            await self._members.call(method, request, action)
        except RefusedError as error:
            if not harmless or harmless not in error.message:
                raise


def _permission(found: rpc.Permission) -> Permission:
    return Permission(found.key.decode(), found.range_end.decode(), found.type != rpc.Permission.READ)
