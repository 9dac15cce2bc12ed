"""Who may do what in etcd. A user is the common name of a client certificate; none has a password.

    host.<name>.<joining>     the role host.<name>, which writes what belongs to that host, and `hosts`, which reads
    leader.<name>.<member>    the role root, for hosts that may lead; deleting the user takes it from the host at once

A certificate that was handed out cannot be called back; the user that it names can be deleted, and then it opens
nothing. So that it never opens anything again, no user comes twice: its last part is the token that a machine joined
with, or the name of a member of etcd, neither of which is ever given again.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from quartermaster.resources import all_kinds, kind_of
from quartermaster.resources.kind import Kind
from quartermaster.resources.kubernetes.core import Secret
from quartermaster.stores.kv.base import prefix_end
from quartermaster.stores.objects.keys import host_prefixes, kind_prefix

ROOT = "root"
HOSTS = "hosts"


class Permission(msgspec.Struct, frozen=True, order=True):
    """A range of keys."""

    key: str
    end: str
    write: bool = False


def host_role(host: str) -> str:
    return f"host.{host}"


def host_user(host: str, joined: str) -> str:
    return f"{host_role(host)}.{joined}"


def leader_user(host: str, member: str) -> str:
    return f"leader.{host}.{member}"


def host_of_user(user: str) -> str:
    """The host whose user it is; "" for any other, those of leaders included."""
    return _named(user, "host.")


def leads_on(user: str) -> str:
    """The host on which the user leads; "" for any other."""
    return _named(user, "leader.")


def _named(user: str, prefix: str) -> str:
    return user.removeprefix(prefix).rpartition(".")[0] if user.startswith(prefix) else ""


def read_permissions(prefix: str, namespace: str) -> tuple[Permission, ...]:
    """What every host may read: all kinds but Secrets, in its namespace or in none."""
    kinds = [kind_of(cls) for cls in all_kinds()]
    keys = [prefix + _readable(kind, namespace) for kind in kinds if kind is not kind_of(Secret)]
    return tuple(sorted(Permission(key, prefix_end(key)) for key in keys))


def own_permissions(prefix: str, namespace: str, host: str) -> tuple[Permission, ...]:
    """What a host may write: its Host, its heartbeat, the reports of its assignments, its own Secrets."""
    kinds = tuple(kind_of(cls) for cls in all_kinds())
    keys = [prefix + part for part in host_prefixes(kinds, namespace, host)]
    return tuple(sorted(Permission(key, prefix_end(key), write=True) for key in keys))


def _readable(kind: Kind, namespace: str) -> str:
    return f"{kind_prefix(kind)}{namespace}/" if kind.namespaced else kind_prefix(kind)


class EtcdUsers(Protocol):
    """Users and roles of a running etcd. Every call may be repeated."""

    async def ensure_host(self, host: str, joined: str) -> None:
        """The user of the machine that joined so, with exactly the rights of a host; earlier ones of that name go."""
        ...

    async def ensure_role(self, host: str) -> None:
        """The rights of a host, whoever has them."""
        ...

    async def ensure_leader(self, host: str, member: str) -> None: ...

    async def remove_host(self, host: str) -> None:
        """Neither as a host nor as a leader may it do anything from now on."""
        ...

    async def remove_leaders(self, host: str) -> None:
        """Whatever member it was for."""
        ...

    async def names(self) -> tuple[str, ...]: ...
