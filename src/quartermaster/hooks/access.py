"""Who may call the hook service, and over which wire: a bearer token and TLS, both from files that may be renewed.

Secrets that Kubernetes mounts are replaced while the program runs. The token is read again when its file changed, and
so is the certificate; a file that cannot be read then leaves what was read before in force.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
from pathlib import Path

from quartermaster.support.errors import UsageError
from quartermaster.support.log import logger

_LOOK_AGAIN_S = 10.0
_TOKEN_LIMIT = 16 * 1024

_log = logger("hooks.access")


class TokenFile:
    """A bearer token in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = _stamp(path)
        self._token = _read_token(path)
        self._looked_at = 0.0

    def current(self) -> bytes:
        """The token as it is now; the file is looked at no more than every few seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at = now
            self._renew()
        return self._token

    def accepts(self, authorization: str) -> bool:
        """Whether that is the value of an Authorization header with this token, in a time that tells nothing."""
        scheme, _, given = authorization.partition(" ")
        return hmac.compare_digest(given.strip().encode(), self.current()) and scheme.lower() == "bearer"

    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.current().decode()}"}

    def _renew(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._token, self._stamp = _read_token(self._path), stamp
                _log.info("token renewed", path=str(self._path))
        except UsageError as error:
            _log.warning("cannot renew the token", error=str(error))


class Certificate:
    """A certificate and its key, as a context that servers use; `renew` looks whether the files changed."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()
        self._stamps = self._now()

    async def keep_renewing(self, every_s: float = 60.0) -> None:
        """New connections get the new certificate; ends by being cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self.renew()

    def renew(self) -> None:
        try:
            stamps = self._now()
            if stamps != self._stamps:
                # Into a context of its own first: half of a pair must not spoil the one in use.
                Certificate(*self._files)
                self._load()
                self._stamps = stamps
                _log.info("certificate renewed", path=str(self._files[0]))
        except UsageError as error:
            _log.warning("cannot renew the certificate", error=str(error))

    def _now(self) -> tuple[tuple[int, ...], ...]:
        return tuple(_stamp(path) for path in self._files)

    def _load(self) -> None:
        certificate, key = self._files
        try:
            self.context.load_cert_chain(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(
                f"cannot use the certificate {certificate} with the key {key}: {error.strerror or error}",
                hint="both must be PEM files, and the key must belong to the certificate",
            ) from error


def trust(authority: Path | None) -> ssl.SSLContext:
    """For a client: the authorities of the system, or the one in the file alone."""
    try:
        return ssl.create_default_context(cafile=None if authority is None else str(authority))
    except OSError as error:
        raise UsageError(
            f"cannot use the authority {authority}: {error.strerror or error}", hint="it must be a PEM file"
        ) from error


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="does the file exist?") from error
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read_token(path: Path) -> bytes:
    try:
        token = path.read_bytes()[:_TOKEN_LIMIT].strip()
    except OSError as error:
        raise UsageError(f"cannot read the token file {path}: {error.strerror}", hint="does the file exist?") from error
    if not token or not token.isascii() or b"\n" in token:
        raise UsageError(f"cannot use the token in {path}: it must be one line of ASCII and not empty")
    return token
