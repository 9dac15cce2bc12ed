"""What `qm up`, `down`, `agent` and `operator` do: the process of a host, in the foreground or as a daemon."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from quartermaster import __version__
from quartermaster.backends.etcd.tool import DAEMON as ETCD_DAEMON
from quartermaster.cli.addressing import require_own
from quartermaster.cli.contexts import change, contexts_path, embedded_path, with_context, with_current
from quartermaster.cli.offering import Offer, require_root_for_disks
from quartermaster.cli.refusing import require_heard, require_usable
from quartermaster.cli.session import PATIENCE_S, Session
from quartermaster.host import Daemon, Host, open_host
from quartermaster.host.facts import addresses
from quartermaster.host.places import device_root, host_name, state_directory
from quartermaster.operators.settings import HostSettings, read_settings, write_settings
from quartermaster.orchestration.joining.access import read_access
from quartermaster.orchestration.timings import Timings
from quartermaster.resources.names import DEFAULT_NAMESPACE
from quartermaster.resources.orchestration import Wishes
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DaemonError, DeadlineError, ForbiddenError, UsageError

if TYPE_CHECKING:
    from quartermaster.engine.runtime import Listen
    from quartermaster.stores import Store

AGENT_DAEMON = "agent"
# What a process on this host must know of the one that starts it.
_INHERITED = ("HOME", "PATH", "PYTHONPATH", "QM_DEVICE_ROOT", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "KUBECONFIG")
_LOOK_S = 0.05
_LOG_LINES = 15


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of `qm up`."""

    single: bool = False
    foreground: bool = False
    context: str = ""
    debounce_s: float | None = None
    timeout_s: float = 60.0


async def run_agent(session: Session, offer: Offer, listen: str) -> None:
    require_root_for_disks(offer)
    directory = state_directory()
    settings = read_settings(directory)
    if settings is None or session.given_store:
        store = session.given_store or os.environ.get("QM_STORE", "")
        settings = HostSettings(name=host_name(), store=store)
    if not session.given_store:
        refuse_other_name(directory, settings, offer.name)
    known, settings = settings, offered(settings, offer, session.given_namespace)
    require_usable(known, settings, offer)
    await serve(directory, settings, listen_on(listen))


async def run_operator(session: Session, types: tuple[str, ...], listen: str, debounce_s: float | None) -> None:
    from quartermaster.operators.assembly import ensure_kinds, operator_runtime

    timings = Timings() if debounce_s is None else Timings(debounce_s=debounce_s)
    async with session.store(manager="quartermaster") as store:
        session.name_store(store)
        await ensure_kinds(store)
        runtime = operator_runtime(
            store,
            namespace=session.namespace(store),
            timings=timings,
            types=types,
            listen=listen_on(listen),
            signals=True,
        )
        await runtime.run()


async def serve(directory: Path, settings: HostSettings, listen: Listen | None = None) -> None:
    """The host's process, until it is interrupted."""
    from quartermaster.operators.hosting import HostProcess

    root = device_root()
    process = HostProcess(
        directory,
        settings,
        this_host(directory),
        device_directories=(root,) if root is not None else (),
        listen=listen,
        signals=True,
    )
    await process.run()


async def bring_up(session: Session, offer: Offer, wanted: Wanted) -> None:
    require_root_for_disks(offer)
    directory = state_directory()
    before = read_settings(directory)
    refuse_other_kind(before, single=wanted.single)
    refuse_other_name(directory, before, offer.name)
    settings = offered(before or HostSettings(name=host_name()), offer, session.given_namespace)
    require_usable(before, settings, offer)
    machine = this_host(directory)
    await require_own(offer.addresses, machine.commands)
    if wanted.debounce_s is not None:
        settings = replace(settings, timings=replace(settings.timings, debounce_s=wanted.debounce_s))
    if wanted.single:
        settings = single(settings, session)
        await require_heard(settings, offer)
        url = own_url = settings.store
    else:
        from quartermaster.orchestration.joining.bootstrap import bootstrap

        found = settings.addresses or await addresses(machine.commands)
        access = await bootstrap(directory, settings.name, found, machine=machine, namespace=settings.namespace)
        url, own_url = access.leader_url or access.url, access.url
    write_settings(directory, settings)
    context = save_context(wanted.context or ("single" if wanted.single else settings.name), url, settings.namespace)
    tell(f"store: {url.partition('?')[0]}, saved as the context {context}")
    if wanted.foreground:
        await serve(directory, settings)
        return
    await start_agent(machine, directory)
    await wait_until_up(machine, own_url, settings, wanted.timeout_s)
    if url != own_url and not await may_declare(directory, settings):
        # It was deleted while it was away, and with it the right to lead; it gets that anew with a member of etcd.
        save_context(context, own_url, settings.namespace)
        tell("this host may not declare things for now: run `qm up` again when it carries a member of etcd")
    if wanted.single:
        await offer_volumes(url, directory, settings)
    click.echo(f"{settings.name} is up")


async def start_agent(machine: Host, directory: Path) -> None:
    """The agent of this host as a daemon; one that runs with other settings, or of another version, is started anew."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    daemon = Daemon(
        name=AGENT_DAEMON,
        argv=(sys.executable, "-m", "quartermaster", "agent", "-v"),
        environment={**environment, "QM_STATE_DIR": str(directory), "QM_SETTINGS": fingerprint(directory)},
        keep_children=True,
        lasting=device_root() is None,  # a virtual host ends with the machine that it is on
    )
    status = await machine.daemons.replace(daemon)
    kept = "" if status.lasting else "; nothing starts it again after a boot (`qm doctor` says more)"
    tell(f"the agent runs, process {status.pid}{kept}")


async def wait_until_up(machine: Host, url: str, settings: HostSettings, timeout_s: float) -> None:
    """Until the host is registered and somebody leads; the end of the agent's log says why that does not come."""
    from quartermaster.stores import open_store

    store = await open_store(url, patience_s=timeout_s)
    try:
        async with within(timeout_s):
            while waiting := await _missing(store, settings):
                status = await machine.daemons.status(AGENT_DAEMON)
                if not status.running:
                    log = await machine.daemons.logs(AGENT_DAEMON, lines=_LOG_LINES)
                    raise DaemonError(f"cannot bring up {settings.name}: its agent has ended: {status.message}\n{log}")
                await asyncio.sleep(_LOOK_S)
    except ForbiddenError:
        raise ForbiddenError(
            f"cannot bring up {settings.name}: it was taken out of its cluster, and its certificate opens nothing",
            hint="`qm token create` on a host of the cluster, then `qm join TOKEN` here, lets it in again",
        ) from None
    except TimeoutError:
        raise DeadlineError(
            f"cannot see {settings.name} come up within {timeout_s:.0f} s: {waiting}",
            hint="`qm doctor` looks for causes",
        ) from None
    finally:
        await store.close()


async def may_declare(directory: Path, settings: HostSettings) -> bool:
    """Whether this host may lead, as its certificate said. The agent takes that away when it hears that it may not."""
    access = read_access(directory)
    try:
        return access is not None and bool(access.leader_url) and await is_let_in(access.leader_url, settings)
    except UsageError:
        return False  # just now


async def is_let_in(url: str, settings: HostSettings) -> bool:
    """Whether the certificates of that way into the store open anything. Every host may read all Hosts."""
    from quartermaster.resources.orchestration import Host as HostObject
    from quartermaster.stores import open_store

    store = await open_store(url, patience_s=PATIENCE_S)
    try:
        await store.list(HostObject, settings.namespace, limit=1)
    except ForbiddenError:
        return False
    finally:
        await store.close()
    return True


async def _missing(store: Store, settings: HostSettings) -> str:
    from quartermaster.engine.election import LEADER_LEASE
    from quartermaster.orchestration.registration import Registration, described
    from quartermaster.planning.health import READY
    from quartermaster.resources.orchestration import Host as HostObject
    from quartermaster.support.errors import NotFoundError

    try:
        host = await store.get(HostObject, settings.name, settings.namespace)
    except NotFoundError:
        return "its agent has not registered it"
    given = Registration(settings.name, settings.namespace, settings.addresses, settings.labels, settings.wishes)
    if described(host, given) != host:
        return "its agent has not registered it as it is to be now"
    if settings.leads and not await store.lease_held(settings.namespace, LEADER_LEASE):
        return "nobody leads yet"
    if host.status.state != READY:
        return "no leader has seen it yet"
    if host.status.inventory is None:
        return "its disks have not been looked at"
    return "" if host.status.agent_version == __version__ else "its agent is still one of another version"


async def offer_volumes(url: str, directory: Path, settings: HostSettings) -> None:
    """A host alone offers a directory of its own, unless somebody has declared something already."""
    from quartermaster.operators.alone import declare_first_node
    from quartermaster.stores import open_store

    (directory / "volumes").mkdir(parents=True, exist_ok=True)
    store = await open_store(url, manager="qm")
    try:
        for title in await declare_first_node(store, settings, directory / "volumes"):
            tell(f"{title} declared")
    finally:
        await store.close()


async def bring_down(*, force: bool) -> None:
    directory = state_directory()
    if read_settings(directory) is None:
        raise UsageError("cannot stop what was not started: this host was never brought up", hint="`qm up` does that")
    machine = this_host(directory)
    access = read_access(directory)
    if access is not None and not force:
        from quartermaster.cli.stopping import refuse_if_needed

        await refuse_if_needed(access, machine)
    stopped = [name for name in (AGENT_DAEMON, ETCD_DAEMON) if await machine.daemons.stop(name)]
    for name in stopped:
        click.echo(f"{name} stopped")
    if not stopped:
        tell("nothing was running")
    left = [status.name for status in await machine.daemons.list() if status.running]
    if left:
        tell(f"still running: {', '.join(left)}")


def this_host(directory: Path) -> Host:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return open_host(directory, device_root=device_root())


def offered(settings: HostSettings, offer: Offer, namespace: str) -> HostSettings:
    """The settings with what was given on the command line."""
    wishes = Wishes(devices=offer.devices, directories=offer.directories, use_all_devices=offer.all_devices or None)
    return replace(
        settings,
        name=offer.name or settings.name,
        namespace=namespace or settings.namespace or DEFAULT_NAMESPACE,
        addresses=offer.addresses or settings.addresses,
        labels={**settings.labels, **offer.labels},
        wishes=wishes if wishes != Wishes() else settings.wishes,
    )


def single(settings: HostSettings, session: Session) -> HostSettings:
    chosen = session.choice.store
    store = settings.store or (chosen if chosen.startswith("sqlite:") else f"sqlite:{embedded_path(os.environ)}")
    path = Path(store.removeprefix("sqlite:")).expanduser().absolute()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One host merges nothing: there is nobody whose changes to wait for.
    return replace(settings, store=f"sqlite:{path}", leads=True, timings=replace(settings.timings, debounce_s=0.0))


def refuse_other_kind(before: HostSettings | None, *, single: bool) -> None:
    if before is None or bool(before.store) == single:
        return
    what = f"alone, on {before.store}" if before.store else "a part of a cluster"
    hint = "`qm store migrate` moves it to etcd" if before.store else "`qm up` without --single starts it"
    raise UsageError(f"cannot bring up {before.name}: this host is {what} already", hint=hint)


def refuse_other_name(directory: Path, before: HostSettings | None, name: str) -> None:
    """By another name its agent would run what another host was asked for, and clear away what is its own."""
    access = read_access(directory)
    known = access.host if access is not None else before.name if before is not None and before.store else ""
    if name and known and name != known:
        raise UsageError(
            f"cannot call this host {name}: it is known as {known}, and what is on it belongs to that name",
            hint=f"leave out --name; to begin anew, take {known} out first (`qm leave`)",
        )


def save_context(name: str, url: str, namespace: str) -> str:
    def edit(saved: object) -> object:
        return with_current(with_context(saved, name, url, namespace), name)  # type: ignore[arg-type]

    change(contexts_path(os.environ), edit)  # type: ignore[arg-type]
    return name


def fingerprint(directory: Path) -> str:
    """Changes with what the agent reads at its start and with the program, so that an outdated one is known."""
    import hashlib

    from quartermaster.operators.settings import FILE

    return hashlib.sha256((directory / FILE).read_bytes() + __version__.encode()).hexdigest()[:16]


def listen_on(text: str) -> Listen | None:
    if not text:
        return None
    from quartermaster.engine.runtime import Listen

    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f'cannot listen on "{text}"', hint="HOST:PORT, for example 127.0.0.1:9101")
    return Listen(host=host, port=int(port))


def tell(text: str) -> None:
    click.echo(click.style(text, dim=True), err=True)
