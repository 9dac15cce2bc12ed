"""Hooks over HTTP: each call a function of its body, nothing kept between two of them.

    POST /sync/<hook>, POST /finalize/<hook>      metac's GenericController JSON (protocol.py)
    GET /openapi.json, /metrics, /healthz, /readyz

What is wrong with a request is answered with a 4xx and one sentence, before the hook is called. Bodies are bounded one
by one and all together, so that no number of callers takes more memory than was granted; what does not arrive in time
is given up. With a token every path but the two of health wants it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from quartermaster.backends.cstor.hook import Hook, SyncRequest, SyncResponse
from quartermaster.engine.metrics import HOOK_CALLS, HOOK_DURATION, Metrics
from quartermaster.hooks.access import Certificate, TokenFile
from quartermaster.hooks.openapi import describe
from quartermaster.hooks.protocol import KnownObjects, RequestRefusedError, decode_request, encode_response
from quartermaster.support import clock
from quartermaster.support.deadlines import within
from quartermaster.support.errors import UsageError
from quartermaster.support.log import logger
from quartermaster.support.tasks import TaskGroup

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

DEFAULT_PORT = 8474
MAX_REQUEST_BYTES = 64 * 2**20
BODY_TIMEOUT_S = 30.0
# Of the largest bodies so many may be in hand at once; of smaller ones accordingly more.
_BODIES_IN_HAND = 4
_SHUTDOWN_S = 5.0
_IDLE_S = 75.0
# For the rest of a body that was refused, so that its sender gets to read why.
_LINGERING_S = 1.0
_OPEN_PATHS = ("/healthz", "/readyz")

_log = logger("hooks.service")


class _OneLine(logging.Filter):
    """Who speaks no HTTP is told so, and gets a line in the log: aiohttp would add the stack of its parser."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True


_PROTOCOL_LOG = logging.getLogger("quartermaster.hooks.http")
_PROTOCOL_LOG.addFilter(_OneLine())


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT  # 0 leaves it to the system
    max_request_bytes: int = MAX_REQUEST_BYTES
    body_timeout_s: float = BODY_TIMEOUT_S


class HookService:
    """`async with service.serving() as port`: serves until the block ends, which waits for what is in hand."""

    def __init__(
        self,
        hooks: Iterable[Hook],
        options: ServiceOptions | None = None,
        *,
        token: TokenFile | None = None,
        certificate: Certificate | None = None,
        metrics: Metrics | None = None,
        pages: Mapping[str, Handler] | None = None,
    ) -> None:
        """`pages` are further paths that are read with GET."""
        self._pages = pages or {}
        self._hooks = {hook.name: hook for hook in hooks}
        self._options = options or ServiceOptions()
        self._token = token
        self._certificate = certificate
        self._metrics = metrics or Metrics()
        self._description = msgspec.json.encode(describe(self._hooks.values(), secured=token is not None))
        self._durations = {name: self._metrics.histogram(HOOK_DURATION, name) for name in self._hooks}
        self._answered = {name: self._metrics.counter(HOOK_CALLS, name, "200") for name in self._hooks}
        self._granted = _BODIES_IN_HAND * self._options.max_request_bytes
        self._known = KnownObjects()
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._ending = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Gives the port."""
        options = self._options
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_PROTOCOL_LOG,
            shutdown_timeout=_SHUTDOWN_S,
            auto_decompress=False,  # such bodies are refused, and aiohttp would look into what is left of them
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGERING_S,
        )
        await runner.setup()
        try:
            context = None if self._certificate is None else self._certificate.context
            site = web.TCPSite(runner, options.host, options.port, ssl_context=context)
            try:
                await site.start()
            except OSError as error:
                raise UsageError(
                    f"cannot serve hooks on {options.host}:{options.port}: {_cause(error)}",
                    hint="choose another address with --listen",
                ) from error
            async with TaskGroup() as group:
                if self._certificate is not None:
                    group.start(self._certificate.keep_renewing(), name="certificate")
                try:
                    yield int(runner.addresses[0][1])
                finally:
                    group.cancel()
                    await self._end(site)
        finally:
            await runner.cleanup()

    async def _end(self, site: web.TCPSite) -> None:
        """No new calls, and a while for those in hand; aiohttp by itself would cut off bodies that are on their way."""
        self._ending = True
        await site.stop()
        if self._in_hand:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _SHUTDOWN_S)

    def _application(self) -> web.Application:
        @web.middleware
        async def refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._refusing(request, handler)

        application = web.Application(client_max_size=self._options.max_request_bytes, middlewares=[refusing])
        router = application.router
        router.add_post("/sync/{hook}", self._sync)
        router.add_post("/finalize/{hook}", self._finalize)
        for path, handler in self._pages.items():
            router.add_get(path, handler)
        router.add_get("/openapi.json", self._openapi)
        router.add_get("/metrics", self._show_metrics)
        router.add_get("/healthz", self._healthz)
        router.add_get("/readyz", self._readyz)
        return application

    async def _refusing(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal has one form, and is counted; a mistake of ours is told apart from one of the caller."""
        retry: dict[str, str] = {}
        try:
            self._check_token(request)
            return await handler(request)
        except RequestRefusedError as error:
            status, code, message = error.status, error.code, str(error)
            retry = {"Retry-After": "1"} if status == 503 else {}
        except web.HTTPRequestEntityTooLarge:
            status, code, message = 413, "TooLarge", self._too_large()
        except web.HTTPException as error:
            status, code = error.status, error.reason.replace(" ", "")
            message = f"cannot answer {request.method} {request.path}; /openapi.json says what there is"
        except Exception:
            _log.exception("hook failed", path=request.path)
            status, code, message = (
                500,
                "HookFailed",
                "cannot answer: the hook failed; see the log of the service",
            )
        name = request.match_info.get("hook", "")
        if name in self._hooks:
            self._metrics.counter(HOOK_CALLS, name, str(status)).inc()
        if status == 401:
            retry = {"WWW-Authenticate": "Bearer"}
        # What was not read of a refused body would be taken for the next request.
        return web.Response(
            status=status,
            body=msgspec.json.encode({"code": status, "reason": code, "message": message}),
            content_type="application/json",
            headers={**retry, **({} if request.body_exists is False else {"Connection": "close"})},
        )

    def _check_token(self, request: web.Request) -> None:
        if self._token is None or request.path in _OPEN_PATHS:
            return
        if not self._token.accepts(request.headers.get("Authorization", "")):
            raise RequestRefusedError(401, "Unauthorized", "cannot answer: the bearer token is missing or wrong")

    async def _sync(self, request: web.Request) -> web.StreamResponse:
        return await self._called(request, self._hook(request))

    async def _finalize(self, request: web.Request) -> web.StreamResponse:
        hook = self._hook(request)
        if hook.finalize is None:
            raise RequestRefusedError(404, "NotFound", f"cannot call the hook {hook.name}: it has nothing to finalize")
        return await self._called(request, hook, finalize=True)

    async def _called(self, request: web.Request, hook: Hook, *, finalize: bool = False) -> web.StreamResponse:
        self._in_hand += 1
        self._idle.clear()
        try:
            return await self._answer(request, hook, finalize=finalize)
        finally:
            self._in_hand -= 1
            if not self._in_hand:
                self._idle.set()

    async def _answer(self, request: web.Request, hook: Hook, *, finalize: bool) -> web.StreamResponse:
        body = await self._body(request)
        started = clock.monotonic()
        asked = decode_request(hook, body, now=clock.timestamp(), known=self._known)
        if finalize and not asked.finalizing:
            raise RequestRefusedError(409, "Stale", f'cannot call {request.path}: "finalizing" is not true')
        answer = encode_response(_call(hook, asked))
        self._durations[hook.name].observe(clock.monotonic() - started)
        self._answered[hook.name].inc()
        return web.Response(body=answer, content_type="application/json")

    def _hook(self, request: web.Request) -> Hook:
        name = request.match_info["hook"]
        hook = self._hooks.get(name)
        if hook is None:
            known = ", ".join(self._hooks) or "none"
            raise RequestRefusedError(404, "NotFound", f'cannot find the hook "{name}"; known are {known}')
        return hook

    async def _body(self, request: web.Request) -> bytes:
        """The whole body, within its bounds."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RequestRefusedError(415, "UnsupportedMediaType", "cannot read the body: it is compressed")
        limit = self._options.max_request_bytes
        length = limit if request.content_length is None else request.content_length
        if length > limit:
            raise RequestRefusedError(413, "TooLarge", self._too_large())
        if self._ending or length > self._granted:
            raise RequestRefusedError(503, "Busy", "cannot answer now: too much is in hand, or the service ends")
        self._granted -= length
        try:
            async with within(self._options.body_timeout_s):
                return await request.read()
        except TimeoutError:
            raise RequestRefusedError(408, "Timeout", "cannot read the body: it did not arrive in time") from None
        except (ConnectionError, web.RequestPayloadError):
            raise RequestRefusedError(400, "Incomplete", "cannot read the body: it broke off") from None
        finally:
            self._granted += length

    def _too_large(self) -> str:
        return f"cannot read the body: larger than {self._options.max_request_bytes} bytes; see --max-request-size"

    async def _openapi(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self._description, content_type="application/json")

    async def _show_metrics(self, _: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return web.Response(body=self._metrics.exposition(), headers=headers)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=503 if self._ending else 200, text="ending\n" if self._ending else "ok\n")


def _cause(error: OSError) -> str:
    """asyncio puts the address before what the system said; that stands in our sentence already."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror or error)


def _call(hook: Hook, request: SyncRequest) -> SyncResponse:
    function = hook.finalize if request.finalizing else hook.sync
    if function is None:
        raise RequestRefusedError(404, "NotFound", f"cannot call the hook {hook.name}: it has nothing to finalize")
    return function(request)
