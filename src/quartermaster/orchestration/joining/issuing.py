"""The leader's side of certificates: each host is told which it should have, and what it asks for is signed.

Who asks is known by where the request stands: only the host itself can write the report of its own assignment. What
a certificate says is decided here; of the request only the key is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quartermaster.backends.assigning import Assigning, as_plain, is_done
from quartermaster.backends.base import RefreshEvent, RefreshKey
from quartermaster.backends.etcd.files import CERTIFICATES, PEER, SERVER
from quartermaster.backends.etcd.memory import MEMORY_NAME, Seat, from_object
from quartermaster.engine.controller import Scope
from quartermaster.orchestration.joining.authority import Authority, load_authority
from quartermaster.orchestration.joining.certificates import Granted, Wanted, digest_of
from quartermaster.orchestration.joining.profiles import (
    HOST,
    LIFETIME_S,
    Profile,
    as_joined,
    certificates_of,
    profile_of,
)
from quartermaster.planning.cluster import Desired
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.model import Key
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.support import clock
from quartermaster.support.errors import InvalidError, NotFoundError
from quartermaster.support.log import logger

_log = logger("orchestration.joining")


class CertificateManager:
    """See `ServiceManager`."""

    name = CERTIFICATES

    def __init__(self, scope: Scope, *, namespace: str, lifetime_s: float = LIFETIME_S) -> None:
        self._store = scope.store
        self._hosts = scope.caches.of(Host, namespace)
        self._assigning = Assigning(scope, namespace)
        self._namespace = namespace
        self._lifetime_s = lifetime_s
        self._authority: Authority | None = None
        self._carrying: tuple[str, ...] = ()

    def refresh_keys(self) -> Sequence[RefreshKey]:
        return (
            RefreshKey(Assignment, field="status"),
            RefreshKey(Host, field="spec"),
            RefreshKey(ConfigMap, fields=f"metadata.name={MEMORY_NAME}", field="data"),
        )

    async def handle_refresh(self, event: RefreshEvent) -> float | None:
        names = self._concerned(event)
        if not names and not _members_changed(event):
            return None
        try:
            memory = from_object(await self._store.get(ConfigMap, MEMORY_NAME, self._namespace))
        except NotFoundError:
            return None  # the store is not an etcd of ours: there is nobody to sign for
        before, self._carrying = self._carrying, tuple(seat.host for seat in memory.seats)
        for name in sorted(dict.fromkeys((*names, *before, *self._carrying))):
            host = self._hosts.get(Key(self._namespace, name))
            if host is not None and host.metadata.deletion_timestamp is None:
                await self._serve(host, memory.at(name))
        return None

    def _concerned(self, event: RefreshEvent) -> tuple[str, ...]:
        """The hosts whose certificates may have to change, beside those that carry a member."""
        if event.full:
            return tuple(host.metadata.name for host in self._hosts.list())
        names = dict.fromkeys([*event.added, *event.changed])
        for one in event.touched:
            agent, _, host = one.key.name.partition(".")
            if one.kind is Assignment and agent == CERTIFICATES:
                names[host] = None
        return tuple(names)

    async def _serve(self, host: Host, seat: Seat | None) -> None:
        name = host.metadata.name
        addresses = (*host.spec.addresses, *((seat.config.address,) if seat is not None else ()))
        names = certificates_of(seat.phase if seat is not None else None)
        member = seat.id if seat is not None else ""
        profiles = {one: profile_of(one, name, addresses, member=member) for one in names}
        current = self._assigning.get(name, CERTIFICATES)
        granted = granted_in(current)
        requests = requests_in(current) if current is not None and is_done(current) else {}
        for one, profile in profiles.items():
            request = requests.get(one)
            known = granted.get(one)
            if request is None:
                continue
            if known is None or known.request != digest_of(request) or known.profile != profile.digest:
                signed = await self._sign(host, one, request, profile, joined=joined_in(current))
                if signed is not None:
                    granted[one] = signed
        wanted = Wanted(
            {one: profile.digest for one, profile in profiles.items()},
            {one: found for one, found in sorted(granted.items()) if one in profiles},
        )
        await self._assigning.ensure(Desired(name, CERTIFICATES, as_plain(msgspec.to_builtins(wanted))))

    async def _sign(self, host: Host, one: str, request: str, profile: Profile, *, joined: str) -> Granted | None:
        name = host.metadata.name
        if self._authority is None:
            self._authority = await load_authority(self._store, self._namespace)
        try:
            says = as_joined(profile, name, joined) if one == HOST else profile
            issued = self._authority.sign(request, says, now=clock.wall_time(), lifetime_s=self._lifetime_s)
        except InvalidError as error:
            _log.warning("a request for a certificate is not signed", host=name, error=str(error))
            return None
        _log.info("a certificate was signed", host=name, common_name=says.common_name)
        return Granted(digest_of(request), profile.digest, issued.certificate, issued.not_before, issued.not_after)


def _members_changed(event: RefreshEvent) -> bool:
    return any(one.kind is ConfigMap and one.key.name == MEMORY_NAME for one in event.touched)


def granted_in(assignment: Assignment | None) -> dict[str, Granted]:
    desired = assignment.spec.desired if assignment is not None else None
    try:
        return dict(msgspec.convert(desired or {"profiles": {}}, Wanted).granted)
    except msgspec.ValidationError:
        return {}


def requests_in(assignment: Assignment) -> Mapping[str, str]:
    requests: Any = (assignment.status.result or {}).get("requests")
    if not isinstance(requests, dict):
        return {}
    return {name: text for name, text in requests.items() if isinstance(text, str)}


def joined_in(assignment: Assignment | None) -> str:
    """How the host says that it joined. Whatever it says names a user of its own, and only joining makes users."""
    result = assignment.status.result if assignment is not None else None
    joined: Any = (result or {}).get("joined")
    return joined if isinstance(joined, str) else ""


def has_member_certificates(assignment: Assignment | None) -> bool:
    """Whether the host says that what a member of etcd needs is installed, and as it should be."""
    if assignment is None or not is_done(assignment):
        return False
    profiles: Any = (assignment.spec.desired or {}).get("profiles") or {}
    installed: Any = (assignment.status.result or {}).get("installed") or {}
    return all(name in profiles and installed.get(name) == profiles[name] for name in (SERVER, PEER))
