"""The certificates of one host: its keys are made here and never leave it; what it asks for and gets are requests and
certificates, which are no secrets and go through the store like everything else.

    tls/<name>.key, <name>.crt      what is used
    tls/pending/<name>.key          a key for which a certificate was asked
    tls/certificates.json           what each one says, and from when to when it counts

A new certificate is asked for when there is none, when it should say something else, and when a third of its life is
left. Everything that uses these files reads them again at its next handshake or after a failure.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.etcd.files import AUTHORITY_FILE, CERTIFICATES, certificate_file, key_file
from quartermaster.host.files import remove, write_whole
from quartermaster.orchestration.joining.access import StoreAccess, read_access, with_endpoints
from quartermaster.orchestration.joining.authority import Issued, fingerprint_of, new_key, request_for
from quartermaster.orchestration.joining.profiles import HOST, is_due
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.errors import InvalidError

_RECORD = "certificates.json"


class Granted(msgspec.Struct, frozen=True, rename="camel"):
    """A certificate as a leader hands it out: for which request, and what it says."""

    request: str  # its digest
    profile: str
    certificate: str
    not_before: float
    not_after: float


class Wanted(msgspec.Struct, frozen=True, rename="camel"):
    """The assignment of the agent "certificates"."""

    profiles: dict[str, str]  # name → what it should say, as a digest
    granted: dict[str, Granted] = {}


class Installed(msgspec.Struct, frozen=True, rename="camel"):
    profile: str
    not_before: float
    not_after: float


class HostCertificates:
    """The files below the state directory."""

    def __init__(self, state: Path) -> None:
        self.directory = state / "tls"
        self._pending = self.directory / "pending"

    def installed(self) -> dict[str, Installed]:
        """Those that are there and whose key fits."""
        try:
            recorded = msgspec.json.decode((self.directory / _RECORD).read_bytes(), type=dict[str, Installed])
        except FileNotFoundError:
            return {}
        return {name: one for name, one in sorted(recorded.items()) if self._fits(name)}

    def request(self, name: str) -> str:
        """For the key that waits for a certificate; the same until it gets one."""
        path = self._pending / f"{name}.key"
        if not path.exists():
            self._pending.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, new_key())
        saved = self._pending / f"{name}.csr"
        if not saved.exists():
            write_whole(saved, request_for(path.read_bytes()).encode())
        return saved.read_text()

    def asked(self, name: str) -> str:
        """The digest of the request that waits for an answer; "" where none does."""
        try:
            return digest_of((self._pending / f"{name}.csr").read_text())
        except FileNotFoundError:
            return ""

    def install(self, name: str, issued: Issued, profile: str) -> None:
        """The pending key and its certificate come into use. Repeated after a crash it ends in the same."""
        pending = self._pending / f"{name}.key"
        if pending.exists():
            write_whole(key_file(self.directory, name), pending.read_bytes())
        write_whole(certificate_file(self.directory, name), issued.certificate.encode())
        if not self._fits(name):
            raise InvalidError(f"cannot use the certificate {name}: it is not for the key that was made here")
        self._record({**self._recorded(), name: Installed(profile, issued.not_before, issued.not_after)})
        remove(self._pending / f"{name}.csr")
        remove(pending)

    def write_authority(self, certificate: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self.directory / AUTHORITY_FILE, certificate)

    def knows(self, fingerprint: str) -> bool:
        """Whether that is the authority of the cluster that this host is in."""
        try:
            certificate = (self.directory / AUTHORITY_FILE).read_bytes()
        except FileNotFoundError:
            return False
        return fingerprint_of(certificate) == fingerprint

    def discard(self, name: str) -> None:
        self._record({known: one for known, one in self._recorded().items() if known != name})
        remove(certificate_file(self.directory, name))
        remove(key_file(self.directory, name))
        remove(self._pending / f"{name}.csr")
        remove(self._pending / f"{name}.key")

    def _recorded(self) -> dict[str, Installed]:
        try:
            return msgspec.json.decode((self.directory / _RECORD).read_bytes(), type=dict[str, Installed])
        except FileNotFoundError:
            return {}

    def _record(self, installed: dict[str, Installed]) -> None:
        write_whole(self.directory / _RECORD, msgspec.json.encode(installed, order="sorted"))

    def _fits(self, name: str) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(certificate_file(self.directory, name), key_file(self.directory, name))
        except (OSError, ssl.SSLError):
            return False
        return True


class CertificateAgent:
    """The service agent that keeps a host's certificates, and its list of the store's endpoints."""

    name = CERTIFICATES

    def __init__(self, state: Path) -> None:
        self._state = state
        self._files = HostCertificates(state)

    async def initialize(self, context: AgentContext) -> None:
        """What a host has when it starts came from joining."""

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        wanted = msgspec.convert(context.desired, Wanted)
        access = self._keep_endpoints(context.store)
        installed = self._files.installed()
        requests: dict[str, str] = {}
        for name, profile in sorted(wanted.profiles.items()):
            known = installed.get(name)
            if known is not None and known.profile == profile and not self._is_due(known):
                continue
            granted = wanted.granted.get(name)
            if granted is not None and granted.profile == profile and granted.request == self._files.asked(name):
                issued = Issued(granted.certificate, granted.not_before, granted.not_after)
                self._files.install(name, issued, profile)
            else:
                requests[name] = self._files.request(name)
        for name in installed:
            if name not in wanted.profiles and name != HOST:
                self._files.discard(name)
        present = {name: one.profile for name, one in self._files.installed().items() if name in wanted.profiles}
        return {"installed": present, "requests": requests, "joined": access.joined if access is not None else ""}

    async def destroy_local_service(self, context: AgentContext) -> None:  # noqa: ARG002 - the protocol's signature
        """The host's own certificate opens the store through which this was asked; `qm leave` removes it in the end."""
        for name in self._files.installed():
            if name != HOST:
                self._files.discard(name)

    def _is_due(self, known: Installed) -> bool:
        return is_due(known.not_before, known.not_after, clock.wall_time())

    def _keep_endpoints(self, store: Store) -> StoreAccess | None:
        """What the store's connection has learnt of the members is there at the next start."""
        access = read_access(self._state)
        endpoints = getattr(getattr(store, "kv", None), "endpoints", ())
        return with_endpoints(access, endpoints) if access is not None else None


def digest_of(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()
