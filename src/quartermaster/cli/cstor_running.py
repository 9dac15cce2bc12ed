"""What `qm cstor serve` and `qm cstor controller` do: two programs that run until they are told to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.backends.cstor import HOOKS
from quartermaster.cli.session import checked_namespace
from quartermaster.hooks.access import Certificate, TokenFile, trust
from quartermaster.hooks.assembly import LEASE, controller_runtime
from quartermaster.hooks.callers import Caller, InProcess, OverHTTP
from quartermaster.hooks.protocol import declared_kinds
from quartermaster.resources import Namespace
from quartermaster.resources.openebs import OPENEBS_NAMESPACE
from quartermaster.resources.quantity import Amount, check_quantity
from quartermaster.support.errors import NotFoundError, QuartermasterError, UsageError

if TYPE_CHECKING:
    from quartermaster.backends.cstor.hook import Hook
    from quartermaster.cli.session import Session
    from quartermaster.engine import Listen, Metrics
    from quartermaster.hooks.service import Handler, ServiceOptions
    from quartermaster.stores import Store

MANAGER = "cstorpoolauto"
_LEAST_REQUEST = 1024


class HooksAt(msgspec.Struct, frozen=True):
    """Where the controller finds its hooks; "" is in its own process."""

    url: str = ""
    token: Path | None = None
    authority: Path | None = None


class Secrets(msgspec.Struct, frozen=True):
    """The files of the service."""

    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None


class Controlled(msgspec.Struct, frozen=True):
    """What the controller was asked for beside that."""

    listen: str
    watch_namespace: str | None
    workers: int


def service_options(listen: str, size: str) -> ServiceOptions:
    try:
        from quartermaster.hooks.service import ServiceOptions
    except ImportError as error:
        raise UsageError(
            "cannot serve hooks: aiohttp is missing", hint="pip install 'quartermaster[kubernetes]'"
        ) from error
    if wrong := check_quantity(size):
        raise UsageError(f'cannot use the size "{size}": it {wrong}', hint="for example 64Mi")
    if (most := Amount.of(size).bytes) < _LEAST_REQUEST:
        raise UsageError(f'cannot use the size "{size}": no request is so small', hint="for example 64Mi")
    host, port = host_and_port(listen)
    return ServiceOptions(host=host, port=port, max_request_bytes=most)


async def serve(
    hooks: Sequence[Hook],
    options: ServiceOptions,
    secrets: Secrets,
    health_listen: str = "",
    pages: Mapping[str, Handler] | None = None,
) -> None:
    from quartermaster.engine.metrics import Metrics
    from quartermaster.hooks.service import HookService

    metrics = Metrics()
    service = HookService(
        hooks,
        options,
        token=None if secrets.token is None else TokenFile(secrets.token),
        certificate=_certificate(secrets),
        metrics=metrics,
        pages=pages,
    )
    with told_to_end() as ending:
        async with service.serving() as port, _health(health_listen, metrics):
            scheme = "http" if secrets.certificate is None else "https"
            names = ", ".join(hook.name for hook in hooks)
            click.echo(f"hooks on {scheme}://{options.host}:{port}: {names}", err=True)
            await ending.wait()


async def control(session: Session, place: HooksAt, controlled: Controlled) -> None:
    async with session.store(manager=MANAGER) as store:
        session.name_store(store)
        await control_hooks(session, store, HOOKS, place, controlled)


async def control_hooks(
    session: Session,
    store: Store,
    hooks: Sequence[Hook],
    place: HooksAt,
    controlled: Controlled,
    *,
    lease: str = LEASE,
) -> None:
    watched = checked_namespace(controlled.watch_namespace or "") or None
    caller = _caller(place)
    try:
        # Whatever context somebody has: two that look in different places would both lead.
        namespace = session.given_namespace or OPENEBS_NAMESPACE
        await _tell_what_is_missing(store, hooks, namespace)
        runtime = controller_runtime(
            store,
            hooks,
            caller=caller,
            namespace=namespace,
            watch_namespace=watched,
            lease=lease,
            listen=_listen(controlled.listen),
            workers=controlled.workers,
            signals=True,
        )
        await runtime.run()
    finally:
        await caller.close()


async def _tell_what_is_missing(store: Store, hooks: Sequence[Hook], namespace: str) -> None:
    """A controller waits for kinds that nobody has installed, and for its own namespace: people should know."""
    if store.fences:
        return  # such a store knows all kinds, and any namespace
    for kind in dict.fromkeys(kind for hook in hooks for kind in (hook.watch, *declared_kinds(hook))):
        await _tell_if_missing(store.list(kind, limit=1))
    await _tell_if_missing(store.get(Namespace, namespace))


async def _tell_if_missing(look: Awaitable[object]) -> None:
    try:
        await look
    except NotFoundError as error:
        click.echo(f"note: {error}; waiting until it is there", err=True)
    except QuartermasterError:
        return  # it may not look, or not now; who has to will say so


def host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'cannot listen on "{text}"', hint="HOST:PORT, for example 127.0.0.1:8474")
    return host.strip("[]"), int(port)


@contextmanager
def told_to_end() -> Iterator[asyncio.Event]:
    """Set by SIGTERM and Ctrl-C."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    try:
        yield ending
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _certificate(secrets: Secrets) -> Certificate | None:
    if secrets.certificate is None and secrets.key is None:
        return None
    if secrets.certificate is None or secrets.key is None:
        raise UsageError("cannot use TLS with only one of --tls-cert and --tls-key", hint="give both, or neither")
    return Certificate(secrets.certificate, secrets.key)


@asynccontextmanager
async def _health(listen: str, metrics: Metrics) -> AsyncIterator[None]:
    """For probes and Prometheus, where the hooks themselves are on loopback or want a token."""
    from quartermaster.engine.endpoints import serving

    if not listen:
        yield
        return
    host, port = host_and_port(listen)
    async with serving(host, port, alive=list, ready=list, metrics=metrics):
        yield


def _caller(place: HooksAt) -> Caller:
    if not place.url:
        if place.token is not None or place.authority is not None:
            raise UsageError("cannot use --token-file or --ca-file without --hooks URL")
        return InProcess()
    return OverHTTP(
        place.url,
        token=None if place.token is None else TokenFile(place.token),
        trust=trust(place.authority) if place.url.startswith("https://") else None,
    )


def _listen(text: str) -> Listen | None:
    from quartermaster.engine import Listen

    if not text:
        return None
    host, port = host_and_port(text)
    return Listen(host=host, port=port)
