"""How a hook is called: in this process, or at a service over HTTP. What comes back is handled by one code path."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Protocol

import msgspec

from quartermaster.backends.cstor.hook import Hook, SyncRequest, SyncResponse
from quartermaster.hooks.access import TokenFile
from quartermaster.hooks.protocol import decode_response, encode_request
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    ConflictError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
    UsageError,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

CALL_TIMEOUT_S = 30.0
ANSWER_LIMIT = 64 * 2**20
_CONNECTIONS = 16
_SHOWN_CHARACTERS = 500


class Caller(Protocol):
    """Calls hooks."""

    @property
    def in_process(self) -> bool:
        """Whether the inventory can be handed over as it is; else its objects have to be sent."""
        ...

    async def call(self, hook: Hook, request: SyncRequest) -> SyncResponse: ...

    async def close(self) -> None: ...


class InProcess:
    """The hook's own function."""

    in_process = True

    async def call(self, hook: Hook, request: SyncRequest) -> SyncResponse:
        function = hook.finalize if request.finalizing else hook.sync
        if function is None:
            raise UsageError(f"cannot finalize with the hook {hook.name}: it has no such function")
        return function(request)

    async def close(self) -> None:
        pass


class OverHTTP:
    """A hook service. Connections are kept; what goes wrong is an error of the store's tree, met with back-off."""

    in_process = False

    def __init__(
        self,
        url: str,
        *,
        token: TokenFile | None = None,
        trust: ssl.SSLContext | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f'cannot call hooks at "{url}"', hint="for example --hooks http://127.0.0.1:8474")
        self._url = url.rstrip("/")
        self._token = token
        self._trust = trust
        self._timeout_s = timeout_s
        self._session: ClientSession | None = None

    async def call(self, hook: Hook, request: SyncRequest) -> SyncResponse:
        url = f"{self._url}/{'finalize' if request.finalizing else 'sync'}/{hook.name}"
        try:
            async with within(self._timeout_s):
                status, retry_after_s, body = await self._post(url, encode_request(hook, request))
        except TimeoutError:
            raise UnavailableError(f"cannot call {url}: no answer within {self._timeout_s:.0f} s") from None
        except OSError as error:  # aiohttp's errors of connections are such
            raise _unreachable(url, error) from error
        if status != 200:
            raise _refusal(url, status, retry_after_s, body)
        try:
            return decode_response(body)
        except msgspec.DecodeError as error:
            raise RefusedError(f"cannot use the answer of {url}: {error}") from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, url: str, body: bytes) -> tuple[int, float, bytes]:
        from aiohttp import ClientPayloadError, ServerDisconnectedError

        headers = {"Content-Type": "application/json", **(self._token.header() if self._token else {})}
        try:
            async with self._open_session().post(url, data=body, headers=headers, ssl=self._trust or True) as response:
                return response.status, _retry_after(response), await _read(url, response)
        except (ServerDisconnectedError, ClientPayloadError) as error:
            hint = "" if self._trust else "does it want https?"
            raise UnavailableError(f"cannot call {url}: {error}", hint=hint) from error

    def _open_session(self) -> ClientSession:
        from aiohttp import ClientSession, TCPConnector

        if self._session is None:
            self._session = ClientSession(connector=TCPConnector(limit=_CONNECTIONS), auto_decompress=False)
        return self._session


def _unreachable(url: str, error: OSError) -> UnavailableError:
    """aiohttp's own texts show objects of Python; what went wrong is in the error that it has wrapped."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"cannot call {url}: its certificate is not trusted: {cause.verify_message}",
            hint="--ca-file names the authority that signed it",
        )
    if isinstance(cause, ssl.SSLError):
        return UnavailableError(f"cannot call {url}: no TLS: {cause.reason}", hint="does it speak http?")
    return UnavailableError(f"cannot call {url}: {cause}", hint="is the hook service running?")


async def _read(url: str, response: ClientResponse) -> bytes:
    body = await response.content.read(ANSWER_LIMIT + 1)
    while not response.content.at_eof() and len(body) <= ANSWER_LIMIT:
        body += await response.content.read(ANSWER_LIMIT + 1 - len(body))
    if len(body) > ANSWER_LIMIT:
        raise RefusedError(f"cannot use the answer of {url}: it is longer than {ANSWER_LIMIT >> 20} MiB")
    return body


def _retry_after(response: ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


def _refusal(url: str, status: int, retry_after_s: float, body: bytes) -> Exception:
    try:
        answer = msgspec.json.decode(body, type=_Status)
        said = f"{answer.reason}: {answer.message}"
    except msgspec.DecodeError:
        said = body[:_SHOWN_CHARACTERS].decode(errors="replace")
    text = f"cannot call {url}: it answers {status}, {said}"
    if status == 401:
        return UnauthorizedError(text, hint="give the service's token with --token-file")
    if status == 409:
        return ConflictError(text)
    if status in (408, 429) or status >= 500:
        return UnavailableError(text, retry_after_s=retry_after_s)
    return RefusedError(text)
