"""What `qm join` and `qm leave` do on this host, beside what they say to the cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click
from msgspec.structs import replace

from quartermaster.backends.etcd.member import LocalMember
from quartermaster.backends.etcd.tool import DAEMON as ETCD_DAEMON
from quartermaster.cli.addressing import require_own
from quartermaster.cli.contexts import change, contexts_path, without_context
from quartermaster.cli.hosting import (
    AGENT_DAEMON,
    Wanted,
    is_let_in,
    offered,
    save_context,
    serve,
    start_agent,
    tell,
    this_host,
    wait_until_up,
)
from quartermaster.cli.offering import Offer, require_root_for_disks
from quartermaster.cli.refusing import require_usable
from quartermaster.cli.session import Session
from quartermaster.host import Host
from quartermaster.host.facts import addresses
from quartermaster.host.files import remove
from quartermaster.host.places import host_name, state_directory
from quartermaster.operators.settings import FILE as SETTINGS_FILE
from quartermaster.operators.settings import HostSettings, read_settings, write_settings
from quartermaster.orchestration.joining.access import ACCESS_FILE, StoreAccess, read_access
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.client import join
from quartermaster.orchestration.joining.leaving import announce, forget, reasons_to_stay, what_is_left
from quartermaster.orchestration.joining.remains import discard, remains
from quartermaster.orchestration.joining.tokens import Token, decode
from quartermaster.stores import Store, open_store
from quartermaster.support.deadlines import within
from quartermaster.support.errors import ConflictError, DeadlineError, NotFoundError, UnavailableError, UsageError

_LOOK_S = 0.5


async def join_cluster(session: Session, token: str, offer: Offer, wanted: Wanted) -> None:
    require_root_for_disks(offer)
    directory = state_directory()
    machine = this_host(directory)
    before = read_settings(directory)
    if before is not None and before.store:
        raise UsageError(
            f"cannot join: this host is alone, on {before.store}", hint="`qm store migrate` moves it to etcd"
        )
    carried = decode(token)
    settings = offered(before or HostSettings(name=host_name()), offer, session.given_namespace)
    require_usable(before, settings, offer)
    await require_own(offer.addresses, machine.commands)
    if wanted.debounce_s is not None:
        settings = replace(settings, timings=replace(settings.timings, debounce_s=wanted.debounce_s))
    if not settings.addresses:
        settings = replace(settings, addresses=await addresses(machine.commands))
    access = read_access(directory)
    if access is not None:
        _refuse_another(access, settings.name, HostCertificates(directory), carried)
        if not await _is_let_in(access, settings):
            tell(f"the certificate of {settings.name} opens nothing any more")
            await _forget_former_life(machine, directory)
            access = None
    if access is None:
        tell(f"joining as {settings.name}")
        access = await join(
            directory, token, host=settings.name, addresses=settings.addresses, patience_s=wanted.timeout_s
        )
    settings = replace(settings, namespace=access.namespace)
    write_settings(directory, settings)
    context = save_context(wanted.context or settings.name, access.url, settings.namespace)
    tell(f"store: {access.url.partition('?')[0]}, saved as the context {context}")
    if wanted.foreground:
        await serve(directory, settings)
        return
    await start_agent(machine, directory)
    await wait_until_up(machine, access.url, settings, wanted.timeout_s)
    click.echo(f"{settings.name} is up")


def _refuse_another(access: StoreAccess, name: str, files: HostCertificates, token: Token) -> None:
    if access.host != name:
        raise UsageError(f"cannot join as {name}: this host is in a cluster, as {access.host}")
    if not files.knows(token.fingerprint):
        raise UsageError(
            f"cannot join: this host belongs to another cluster than the token is for, as {access.host}",
            hint="`qm leave` takes it out of that one",
        )


async def _is_let_in(access: StoreAccess, settings: HostSettings) -> bool:
    """A cluster that does not answer says nothing."""
    try:
        return await is_let_in(access.url, replace(settings, namespace=access.namespace))
    except UnavailableError:
        return True


async def _forget_former_life(machine: Host, directory: Path) -> None:
    """Of a host that was taken out while it was away. What its storage nodes have on its disks stays."""
    for name in (AGENT_DAEMON, ETCD_DAEMON):
        await machine.daemons.stop(name)
    member = LocalMember(directory)
    if (config := member.read()) is not None:
        member.set_aside(config)
    _discard_certificates(directory)


def _discard_certificates(directory: Path) -> None:
    files = HostCertificates(directory)
    for name in files.installed():
        files.discard(name)
    remove(directory / ACCESS_FILE)


async def leave_cluster(*, timeout_s: float, keep: bool, cancel: bool) -> None:
    directory = state_directory()
    access = read_access(directory)
    if access is None:
        raise UsageError("cannot leave: this host belongs to no cluster", hint="`qm down` stops a host that is alone")
    store = await open_store(access.url, manager="qm", patience_s=8.0)
    try:
        if cancel:
            await announce(store, access.host, access.namespace, leaving=False)
            click.echo(f"{access.host} stays")
            return
        if reasons := await reasons_to_stay(store, access.host, access.namespace):
            listed = "".join(f"\n  {reason}" for reason in reasons)
            raise ConflictError(f"cannot take {access.host} out of its cluster:{listed}")
        await announce(store, access.host, access.namespace, leaving=True)
        await _until_free(store, access, timeout_s)
        await _go(store, access, directory, keep=keep)
    finally:
        await store.close()
    click.echo(f"{access.host} has left")


async def _until_free(store: Store, access: StoreAccess, timeout_s: float) -> None:
    said = ""
    try:
        async with within(timeout_s):
            while left := await what_is_left(store, access.host, access.namespace):
                if left != said:
                    tell(left)
                    said = left
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise DeadlineError(
            f"cannot see {access.host} free within {timeout_s:.0f} s: {said}",
            hint="it goes on leaving; run it again, or take it back with `qm leave --cancel`",
        ) from None


async def _go(store: Store, access: StoreAccess, directory: Path, *, keep: bool) -> None:
    """The agent first, or it would come back; the way into the store last, or nothing could be finished."""
    machine = this_host(directory)
    for name in (AGENT_DAEMON, ETCD_DAEMON):
        await machine.daemons.stop(name)
    left = remains(directory)
    if left:
        tell(f"{len(left)} backups and data of former members of etcd {'stay' if keep else 'are removed'}")
    for path in [] if keep else left:
        discard(path)
    await forget(store, access.host, access.namespace)
    _discard_certificates(directory)
    remove(directory / SETTINGS_FILE)
    try:
        change(contexts_path(os.environ), lambda saved: without_context(saved, access.host))
    except NotFoundError:
        return
