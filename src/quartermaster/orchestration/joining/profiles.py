"""Which certificates a host has, and what each of them says. A request brings a public key and nothing else.

| name | common name | for |
| host | host.<name>.<joining> | an agent at the store |
| etcd-server | etcd-server | clients of the host's member |
| etcd-peer | etcd-peer | the members among themselves |
| leader | leader.<name>.<member> | a leader at the store, and hosts that join |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from quartermaster.backends.etcd.files import LEADER, PEER, SERVER
from quartermaster.backends.etcd.memory import Phase
from quartermaster.backends.etcd.users import host_role, host_user, leader_user
from quartermaster.support.errors import InvalidError

HOST = "host"
# Whoever joins knows the leader by this name and not by an address: the leader is now here and now there.
ENDPOINT_NAME = "leader.quartermaster"
LIFETIME_S = 365 * 86400.0
# The rest of its life at which a certificate is renewed.
RENEWED_WITH = 1 / 3
# Clocks of hosts differ; what is valid from now on must be valid there, too.
BACKDATED_S = 3600.0
MEMBER_CERTIFICATES = (SERVER, PEER, LEADER)
# The id of a token; nothing in it may be taken for a part of the host's name.
_JOINED = re.compile(r"^[a-z0-9]{1,32}$")


class Profile(msgspec.Struct, frozen=True):
    """What a certificate says beside its key."""

    common_name: str
    server: bool = False
    client: bool = False
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def profile_of(name: str, host: str, addresses: Sequence[str], *, member: str = "") -> Profile:
    """What the certificate of that name says for a host with these addresses, which carries that member of etcd.

    A host's own is made complete by `as_joined` when it is signed: only the machine knows how it came in, and that is
    no reason for another certificate.
    """
    known = tuple(sorted(dict.fromkeys(addresses)))
    match name:
        case "host":
            return Profile(host_role(host), client=True)
        case "leader":
            user = leader_user(host, member)
            return Profile(user, client=True, server=True, names=(ENDPOINT_NAME,), addresses=known)
        case "etcd-server":
            return Profile(SERVER, server=True, names=(host,), addresses=known)
        case "etcd-peer":
            return Profile(PEER, server=True, client=True, names=(host,), addresses=known)
        case _:
            raise ValueError(f"no certificate is called {name}")


def as_joined(profile: Profile, host: str, joined: str) -> Profile:
    """The profile of a host's own certificate, with the user that the host got when it joined so."""
    if not _JOINED.match(joined):
        raise InvalidError(f"cannot name the user of host {host}: it does not say how it joined")
    return msgspec.structs.replace(profile, common_name=host_user(host, joined))


def certificates_of(phase: Phase | None) -> tuple[str, ...]:
    """The names of the certificates that a host should have, by what becomes of the member that it carries."""
    if phase is None or phase == "removing":
        return (HOST,)
    return (HOST, SERVER, PEER, LEADER) if phase == "serving" else (HOST, SERVER, PEER)


def is_due(not_before: float, not_after: float, now: float) -> bool:
    """Whether a certificate should be renewed."""
    return now >= not_after - (not_after - not_before) * RENEWED_WITH
