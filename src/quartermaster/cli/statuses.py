"""A table of clusters and nodes: printed once, or again in its place with every change until all are ONLINE."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quartermaster.cli.failures import FAILED
from quartermaster.cli.finding import Query, list_whole
from quartermaster.cli.leading import somebody_leads
from quartermaster.cli.output import as_document, as_list, format_document, parse_output
from quartermaster.cli.session import Session
from quartermaster.cli.tables import NONE, Writer
from quartermaster.cli.watching import changes
from quartermaster.resources.conditions import find_condition
from quartermaster.resources.marks import CLUSTER_LABEL
from quartermaster.resources.model import Key
from quartermaster.resources.storage import ONLINE, Capacity, NodeReport, StorageCluster, StorageNode, StorageStatus
from quartermaster.support.deadlines import within
from quartermaster.support.errors import DeadlineError, ForbiddenError, NotFoundError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_CLUSTERS = ("CLUSTER", "STATUS", "NODES", "READY", "USED", "CAPACITY", "MESSAGE")
_NODES = ("NODE", "CLUSTER", "HOST", "ZONE", "STATE", "CAPACITY", "MESSAGE")
_NO_BACKEND = "NoBackend"
_LOOK_S = 0.5
_UP = "\x1b[{}A\x1b[J"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    output: str = ""
    wait: bool | None = None
    timeout_s: float = 600.0


async def show_status(session: Session, look: Look) -> int:
    form = parse_output(look.output)
    if form.form not in ("", "yaml", "json"):
        raise UsageError(f'cannot print a status as "{look.output}"', hint="-o takes yaml or json")
    async with session.store(reads_only=True) as store:
        namespace = session.namespace(store)
        found = await _statuses(store, namespace)
        nodes = await _nodes(store, namespace)
        unserved = [] if look.names else [one for one in nodes if _is_unserved(one)]
        live = look.wait if look.wait is not None else form.is_table and sys.stdout.isatty()
        # Who waits for a cluster by its name may have declared it a moment ago.
        wanted = _named(found, look.names) if look.wait else _chosen(found, look.names, namespace)
        if not wanted and unserved and len(unserved) == len(nodes):
            live = False
        elif not wanted:
            live = await _tell_of_nothing(store, namespace, look.names, found) and live
        if live and not (_settled(wanted, look.names) and await _is_worth_it(store, namespace, look)):
            wanted = await _follow(store, namespace, look, unserved, show=form.is_table)
        elif form.is_table:
            click.echo(_table(wanted, unserved), nl=False)
        led = await is_led(store, namespace)
        if (wanted or unserved) and not led:
            click.echo(f"note: {_unled(namespace)}", err=True)
    if not form.is_table:
        click.echo(format_document(form, as_list([as_document(one) for one in wanted])), nl=False)
        for one in unserved:
            click.echo(f"note: StorageNode {one.metadata.name}: {one.status.message}", err=True)
    fine = not unserved and bool(wanted) and all(one.spec.status == ONLINE for one in wanted)
    return 0 if fine else FAILED


async def _statuses(store: Store, namespace: str) -> list[StorageStatus]:
    listing = await list_whole(store, StorageStatus, Query(namespace))
    return [one for one in listing.objects if isinstance(one, StorageStatus)]


async def _nodes(store: Store, namespace: str) -> list[StorageNode]:
    try:
        listing = await list_whole(store, StorageNode, Query(namespace))
    except ForbiddenError:
        return []  # who may not see them has what their clusters say
    return [one for one in listing.objects if isinstance(one, StorageNode)]


def _is_unserved(node: StorageNode) -> bool:
    """No cluster tells of it: the leader has no backend for its type."""
    told = find_condition(node.status.conditions, "Accepted")
    return told is not None and told.reason == _NO_BACKEND


async def _tell_of_nothing(store: Store, namespace: str, names: Sequence[str], others: Sequence[StorageStatus]) -> bool:
    """Say why there is nothing to be seen; whether something may come of waiting."""
    declared = [await store.list(kind, namespace, limit=1) for kind in (StorageNode, StorageCluster)]
    if others:
        known = ", ".join(one.metadata.name for one in others)
        told = f"{', '.join(names)} is not there yet; there are {known}"
    elif not any(page.items for page in declared):
        told = (
            f"no storage cluster is declared in {namespace}: "
            "`qm apply -f FILE` declares storage nodes, `qm explain storagenode` says how"
        )
    elif await is_led(store, namespace):
        told = "the leader has not looked at what is declared yet"
    else:
        told = f"nobody leads in {namespace} to look at what is declared; `qm up` starts this host"
    click.echo(told, err=True)
    return bool(names) or any(page.items for page in declared)


async def _is_worth_it(store: Store, namespace: str, look: Look) -> bool:
    """Whether what is there counts. Who waits wants it from somebody who leads now."""
    return not look.wait or await is_led(store, namespace)


def _unled(namespace: str) -> str:
    return f"nobody leads in {namespace}: this is how the last leader left it"


async def is_led(store: Store, namespace: str) -> bool:
    try:
        return await somebody_leads(store, namespace)
    except ForbiddenError:
        return True  # who may not look has to believe it


def is_named(status: StorageStatus, name: str) -> bool:
    return name in (status.metadata.name, status.metadata.labels.get(CLUSTER_LABEL))


def _chosen(found: Sequence[StorageStatus], names: Sequence[str], namespace: str) -> list[StorageStatus]:
    for name in names:
        if not any(is_named(one, name) for one in found):
            known = ", ".join(one.metadata.name for one in found) or "none"
            raise NotFoundError(f"cannot find the storage cluster {name} in {namespace}", hint=f"there are {known}")
    return _named(found, names)


def _named(found: Sequence[StorageStatus], names: Sequence[str]) -> list[StorageStatus]:
    return [one for one in found if not names or any(is_named(one, name) for name in names)]


def _settled(found: Sequence[StorageStatus], names: Sequence[str]) -> bool:
    """Whether all that is waited for is there and ONLINE; who names nothing waits for at least one."""
    there = all(any(is_named(one, name) for one in found) for name in names)
    return bool(found) and there and all(_is_online(one) for one in found)


def _is_online(status: StorageStatus) -> bool:
    """What is desired and what is told are written one after the other: both have to say so."""
    told = find_condition(status.status.conditions, "Online")
    return status.spec.status == ONLINE and (told is None or told.status == "True")


async def _follow(
    store: Store, namespace: str, look: Look, unserved: Sequence[StorageNode], *, show: bool
) -> list[StorageStatus]:
    """Until all are ONLINE; who waits for nothing in particular waits for the first cluster."""
    screen = _Screen(show)
    latest: list[StorageStatus] = []
    told = False
    try:
        async with within(look.timeout_s), aclosing(_snapshots(store, namespace)) as snapshots:
            async for found in snapshots:
                latest = _named(found, look.names)
                screen.show(_table(latest, unserved))
                while _settled(latest, look.names):
                    if await _is_worth_it(store, namespace, look):
                        return latest
                    if not told:
                        click.echo(f"waiting for a leader: {_unled(namespace)}", err=True)
                    told = True
                    await asyncio.sleep(_LOOK_S)
                    latest = _named(await _statuses(store, namespace), look.names)
    except TimeoutError:
        waiting = "; ".join(f"{one.metadata.name}: {_message(one)}" for one in latest if one.spec.status != ONLINE)
        hint = "`qm describe storagestatus` and `qm devices` tell more"
        if told and not waiting:
            waiting, hint = _unled(namespace), "`qm up` starts this host"
        missing = [name for name in look.names if all(one.metadata.name != name for one in latest)]
        nobody = f"there is no {' and no '.join(missing)}" if missing else "there is none"
        raise DeadlineError(
            f"cannot see the clusters ONLINE within {look.timeout_s:g} s: {waiting or nobody}", hint=hint
        ) from None
    return latest


async def _snapshots(store: Store, namespace: str) -> AsyncGenerator[list[StorageStatus], None]:
    known: dict[Key, StorageStatus] = {}
    yield []
    async with aclosing(changes(store, StorageStatus, Query(namespace))) as batches:
        async for batch in batches:
            for change in batch:
                if change.type == "DELETED":
                    known.pop(change.object.key, None)
                elif isinstance(change.object, StorageStatus):
                    known[change.object.key] = change.object
            yield [known[key] for key in sorted(known)]


class _Screen:
    """On a terminal a table takes the place of the one before; elsewhere every new one is printed below the last."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._terminal = sys.stdout.isatty()
        self._shown = ""

    def show(self, table: str) -> None:
        if not self._wanted or not table or table == self._shown:
            return
        above = _UP.format(self._shown.count("\n")) if self._shown and self._terminal else ""
        click.echo(above + table, nl=False)
        self._shown = table


def _table(found: Sequence[StorageStatus], unserved: Sequence[StorageNode] = ()) -> str:
    if not found and not unserved:
        return ""
    clusters = Writer(_CLUSTERS).format([_cluster_row(one) for one in found]) if found else ""
    nodes = [_node_row(one, node) for one in found for node in one.status.nodes]
    nodes += [(one.metadata.name, NONE, NONE, NONE, one.status.state, NONE, one.status.message) for one in unserved]
    text = "\n".join(filter(None, (clusters, Writer(_NODES).format(nodes) if nodes else "")))
    text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    hidden = sum((one.status.node_count or 0) - len(one.status.nodes) for one in found)
    return text + (f"and {hidden} more nodes, which are ready: `qm get storagenodes`\n" if hidden > 0 else "")


def _cluster_row(one: StorageStatus) -> tuple[str, ...]:
    status = one.status
    return (
        one.metadata.name,
        one.spec.status,
        _count(status.node_count),
        _count(status.ready_count),
        *_amounts(status.capacity),
        _message(one),
    )


def _message(status: StorageStatus) -> str:
    """Of what is written one after the other the one may be there without the other: its reason is that of before."""
    told = find_condition(status.status.conditions, "Online")
    if status.spec.status != ONLINE and told is not None and told.status == "True":
        return "waiting for the leader, which is about to write down what has changed"
    return status.status.message


def _node_row(one: StorageStatus, node: NodeReport) -> tuple[str, ...]:
    total = _amounts(node.capacity)[1]
    return (node.name, one.metadata.name, node.host or NONE, _count(node.zone), node.state, total, node.message)


def _amounts(capacity: Capacity | None) -> tuple[str, str]:
    """(used, total), each as short as it can be said."""
    return (_amount(capacity.used), _amount(capacity.total)) if capacity is not None else ("0", "0")


def _amount(value: Any) -> str:
    from quartermaster.planning.capacity import shown
    from quartermaster.resources.quantity import Amount

    return shown(Amount.of(value).bytes) if value is not None else "0"


def _count(value: int | None) -> str:
    return str(value) if value is not None else "0"
