"""A host's side of joining: find the leader, trust it by the token's fingerprint, show the token, keep what comes.

The key is made before anything is sent and kept until a certificate for it is there, so that whoever is interrupted
can run the same command again: the token then counts as used by this very host.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from quartermaster.orchestration.joining.access import StoreAccess, read_access, write_access
from quartermaster.orchestration.joining.authority import Issued, fingerprint_of
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.profiles import ENDPOINT_NAME, HOST
from quartermaster.orchestration.joining.tokens import Token, decode
from quartermaster.orchestration.joining.wire import (
    ANSWER_S,
    AUTHORITY_PATH,
    JOIN_PATH,
    LARGEST_BYTES,
    Greeting,
    Refusal,
    Request,
    Welcome,
    read_message,
    request_bytes,
    status_of,
)
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    ForbiddenError,
    InvalidError,
    UnauthorizedError,
    UnavailableError,
    UsageError,
)

T = TypeVar("T")
PATIENCE_S = 30.0
_CONNECT_S = 5.0
_RETRY_S = 0.5


async def join(
    directory: Path, token: str, *, host: str, addresses: Sequence[str], patience_s: float = PATIENCE_S
) -> StoreAccess:
    """Become a host of the cluster that the token is for. Repeated after an interruption it completes the same.

    For `patience_s` it looks for a leader: there is none for a moment after one has died.
    """
    known = read_access(directory)
    if known is not None:
        raise UsageError(
            f"cannot join: this host belongs to a cluster already, as {known.host}", hint="`qm leave` takes it out"
        )
    carried = decode(token)
    files = HostCertificates(directory)
    request = files.request(HOST)
    asked = Request(token=carried.id, secret=carried.secret, host=host, addresses=tuple(addresses), request=request)
    authority, welcome = await _knock_until(carried, asked, patience_s)
    files.write_authority(authority)
    files.install(HOST, Issued(welcome.certificate, welcome.not_before, welcome.not_after), welcome.profile)
    return write_access(
        StoreAccess(
            directory=str(directory),
            host=welcome.host,
            namespace=welcome.namespace,
            joined=welcome.joined,
            endpoints=welcome.endpoints,
        )
    )


async def _knock_until(token: Token, asked: Request, patience_s: float) -> tuple[bytes, Welcome]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            return await _knock(token, asked)
        except UnavailableError:
            if loop.time() + _RETRY_S > deadline:
                raise
        await asyncio.sleep(_RETRY_S)


async def _knock(token: Token, asked: Request) -> tuple[bytes, Welcome]:
    """One address after the other: the leader is at one of them."""
    silent: list[str] = []
    for address in token.addresses:
        try:
            async with within(_CONNECT_S):
                authority = await _authority_at(address, token)
            async with within(ANSWER_S):
                return authority, await _ask(address, authority, asked)
        except (OSError, TimeoutError, UnavailableError) as error:
            silent.append(f"{address} ({error.message if isinstance(error, UnavailableError) else _cause(error)})")
    raise UnavailableError(
        f"cannot join: no leader answers at {', '.join(silent)}",
        hint="check that the first host runs and can be reached from here, or make a new token there",
    )


async def _authority_at(address: str, token: Token) -> bytes:
    """The authority's certificate, believed only because the token names it. Nothing secret is sent for it."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    greeting = await _exchange(address, unverified, request_bytes("GET", AUTHORITY_PATH, address), Greeting)
    certificate = greeting.authority.encode()
    if not hmac.compare_digest(fingerprint_of(certificate), token.fingerprint):
        raise UnauthorizedError(
            f"cannot join: who answers at {address} is not the cluster that the token is for",
            hint="nothing was sent there; check the address, or make a new token",
        )
    return certificate


async def _ask(address: str, authority: bytes, asked: Request) -> Welcome:
    verified = ssl.create_default_context(cadata=authority.decode())
    verified.minimum_version = ssl.TLSVersion.TLSv1_3
    body = msgspec.json.encode(asked)
    return await _exchange(address, verified, request_bytes("POST", JOIN_PATH, address, body), Welcome)


async def _exchange(address: str, context: ssl.SSLContext, request: bytes, expected: type[T]) -> T:
    name, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        name.strip("[]"), int(port), ssl=context, server_hostname=ENDPOINT_NAME, limit=LARGEST_BYTES
    )
    try:
        writer.write(request)
        await writer.drain()
        answer = await read_message(reader)
    except ValueError as error:
        raise UnavailableError("it does not speak this protocol") from error
    finally:
        writer.close()
    status = status_of(answer)
    try:
        if status == 200:
            return msgspec.json.decode(answer.body, type=expected)
        refusal = msgspec.json.decode(answer.body, type=Refusal)
    except msgspec.DecodeError as error:
        raise UnavailableError("its answer cannot be read") from error
    if status >= 500:
        raise UnavailableError(refusal.message)
    kind = ForbiddenError if status == 403 else InvalidError
    raise kind(refusal.message, hint=refusal.hint)


def _cause(error: Exception) -> str:
    return "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
