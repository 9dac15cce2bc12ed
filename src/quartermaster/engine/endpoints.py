"""What a process says about itself over HTTP: alive, ready, and its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from quartermaster.engine.metrics import Metrics
from quartermaster.support.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

# Names what is wrong; nothing when all is well.
Check = Callable[[], list[str]]


@asynccontextmanager
async def serving(host: str, port: int, *, alive: Check, ready: Check, metrics: Metrics) -> AsyncIterator[int]:
    """Serve /healthz, /readyz and /metrics while the block runs; gives the port, which 0 leaves to the system."""
    try:
        from aiohttp import web
    except ImportError as error:
        raise UsageError(
            "cannot serve health and metrics: aiohttp is missing", hint="pip install 'quartermaster[kubernetes]'"
        ) from error

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.router.add_get("/healthz", _answer(alive))
    application.router.add_get("/readyz", _answer(ready))
    application.router.add_get("/metrics", show_metrics)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"cannot serve health and metrics on {host}:{port}: {error.strerror}", hint="choose another port"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    from aiohttp import web

    async def handle(_: web.Request) -> web.Response:
        wrong = check()
        return web.Response(status=503 if wrong else 200, text="\n".join(wrong or ["ok"]) + "\n")

    return handle
