"""Who we are on the wire: headers and TLS context, kept until a file changes, a credential expires or is refused.

Files (a projected token, a renewed certificate) are looked at again at most once a second, and read only when they
changed, so asking for the identity before every request costs next to nothing.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from dataclasses import dataclass

from multidict import CIMultiDict

from quartermaster import __version__
from quartermaster.stores.kubernetes.connection import Connection, Material
from quartermaster.stores.kubernetes.plugin import Issued, run_plugin
from quartermaster.stores.kubernetes.tls import tls_context
from quartermaster.support import clock
from quartermaster.support.errors import UsageError

_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Identity:
    """One way of presenting ourselves; compared by identity, to see whether it was replaced meanwhile."""

    headers: CIMultiDict[str]
    lines: bytes  # the same, as they are sent
    tls: ssl.SSLContext | None
    secrets: tuple[bytes | str, ...]  # what it was made from


class Credentials:
    """The current identity for a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        user = connection.user
        self._authority = _Content(connection.authority, "the certificate authority")
        self._certificate = _Content(user.certificate, "the client certificate")
        self._key = _Content(user.key, "the client key")
        self._token = _Content(Material(path=user.token_file), "the token")
        self._issued: Issued | None = None
        self._identity: Identity | None = None
        self._look_again_at = 0.0
        self._lock = asyncio.Lock()

    async def identity(self) -> Identity:
        """What to present now."""
        if self._identity is not None and clock.monotonic() < self._look_again_at:
            return self._identity
        async with self._lock:
            if self._connection.user.plugin is not None and self._is_expired():
                self._issued = await run_plugin(self._connection.user, self._connection.user.plugin)
            return self._present()

    async def renew(self, refused: Identity) -> bool:
        """After the server refused an identity: whether there is another one to try."""
        async with self._lock:
            if self._identity is not refused:
                return True
            if self._connection.user.plugin is not None:
                self._issued = await run_plugin(self._connection.user, self._connection.user.plugin)
            return self._present() is not refused

    def _is_expired(self) -> bool:
        if self._issued is None:
            return True
        return bool(self._issued.expires_at) and clock.wall_time() >= self._issued.expires_at

    def _present(self) -> Identity:
        """Look at all sources; the identity stays the same object while they say the same."""
        issued = self._issued or Issued()
        certificate, key = self._certificate.read(), self._key.read()
        if issued.client_certificate_data:
            certificate, key = issued.client_certificate_data.encode(), issued.client_key_data.encode()
        secrets = (self._authority.read(), certificate, key, self._authorization(issued))
        if self._identity is None or self._identity.secrets != secrets:
            headers = self._headers(secrets[3])
            self._identity = Identity(
                headers=headers,
                lines="".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode(),
                tls=tls_context(self._connection, secrets[0], certificate, key),
                secrets=secrets,
            )
        # A credential about to expire must not be presented for a whole second more.
        self._look_again_at = clock.monotonic() + _LOOK_AGAIN_S
        if issued.expires_at:
            self._look_again_at = min(self._look_again_at, clock.monotonic() + issued.expires_at - clock.wall_time())
        return self._identity

    def _authorization(self, issued: Issued) -> str:
        user = self._connection.user
        token = issued.token or self._token.read().decode("latin-1").strip() or user.token
        if token:
            return f"Bearer {token}"
        if user.username:
            return "Basic " + base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return ""

    def _headers(self, authorization: str) -> CIMultiDict[str]:
        user = self._connection.user
        for what, text in (
            ("token", authorization),
            *(("impersonation", "".join(pair)) for pair in user.impersonation),
        ):
            if any(ord(character) < 32 for character in text):
                raise UsageError(
                    f'cannot use the {what} of user "{user.name}": it has control characters in it',
                    hint=f"look at {user.token_file or self._connection.origin}",
                )
        headers: CIMultiDict[str] = CIMultiDict(user.impersonation)
        headers["Accept"] = "application/json"
        # Compressing costs an API server more than a data centre's network does: kube-controller-manager asks for none.
        headers["Accept-Encoding"] = "identity"
        headers["User-Agent"] = f"quartermaster/{__version__}"
        if authorization:
            headers["Authorization"] = authorization
        return headers


class _Content:
    """What a file holds, read again when it was replaced; or fixed data."""

    def __init__(self, material: Material, what: str) -> None:
        self._material = material
        self._what = what
        self._content = material.data
        self._seen: tuple[int, int, int] | None = None

    def read(self) -> bytes:
        path = self._material.path
        if not path or self._material.data:
            return self._content
        try:
            status = os.stat(path)
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with open(path, "rb") as file:
                    self._content = file.read()
                self._seen = seen
        except OSError as error:
            # While a file is being replaced, what it held is still the best guess.
            if self._seen is None:
                raise UsageError(f"cannot read {self._what} {path}: {error.strerror}") from error
        return self._content
