"""The devices that agents reported, or those of this machine, as a table with the reason beside each rejected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from quartermaster.cli.finding import Query, list_whole
from quartermaster.cli.output import format_document, parse_output
from quartermaster.cli.session import Session
from quartermaster.cli.tables import NONE, Writer
from quartermaster.host.devices import Reason
from quartermaster.planning.choosing import MISSING
from quartermaster.resources.devices import Device
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import Host
from quartermaster.resources.quantity import Amount, of_bytes
from quartermaster.resources.storage import StorageNode
from quartermaster.support.errors import NotFoundError, UsageError

_COLUMNS = ("HOST", "PATH", "SIZE", "STATE", "MESSAGE")
_WIDE = ("HOST", "PATH", "SIZE", "TYPE", "ID", "SERIAL", "STATE", "REASON", "MESSAGE")
_ROUNDED = 1 << 20
_NAMED = 3
_CONSENT = "if nothing on it is wanted, name its serial number or WWN (-o wide) in `wipe` of its StorageNode"
_NEXT_STEPS = {
    Reason.SWAP: "`swapoff` it, and take it out of /etc/fstab",
    Reason.MOUNTED: "unmount it, and take it out of /etc/fstab",
    Reason.HELD: "end what uses it; `lsblk` shows that",
    Reason.PARTITIONED: _CONSENT,
    Reason.MEMBER: _CONSENT,
    Reason.FOREIGN_DATA: _CONSENT,
    Reason.OTHER_CLUSTER: "if nothing on it is wanted, `wipefs --all` it on its host, and name it in its node's `wipe`",
    Reason.DUPLICATE_IDENTITY: "take one of the two away, or let multipath join them",
    Reason.UNREADABLE: "look at its cables and at the kernel's log; it may be dying",
}


async def show_devices(session: Session, host: str, *, this_host: bool, output: str) -> None:
    form = parse_output(output)
    if form.form not in ("", "wide", "yaml", "json"):
        raise UsageError(f'cannot print devices as "{output}"', hint="-o takes wide, yaml or json")
    rows = await _here() if this_host else await _reported(session, host)
    if not form.is_table:
        click.echo(format_document(form, {"devices": rows}), nl=False)
    elif rows:
        headers = _WIDE if form.form == "wide" else _COLUMNS
        click.echo(Writer(headers).format([_cell(row, header) for header in headers] for row in rows), nl=False)
        for note in _next_steps(rows):
            click.echo(f"note: {note}", err=True)
    else:
        click.echo("No devices found", err=True)


async def _reported(session: Session, name: str) -> list[dict[str, Any]]:
    async with session.store(reads_only=True) as store:
        namespace = session.namespace(store)
        found = (await list_whole(store, Host, Query(namespace))).objects
        nodes = (await list_whole(store, StorageNode, Query(namespace))).objects
    hosts = [one for one in found if isinstance(one, Host) and name in ("", one.metadata.name)]
    if name and not hosts:
        known = ", ".join(one.metadata.name for one in found) or "none"
        raise NotFoundError(f'cannot find the host "{name}" in the namespace {namespace}', hint=f"there are: {known}")
    for one in hosts:
        if one.status.inventory is None:
            click.echo(f"note: {one.metadata.name} has not reported its devices yet", err=True)
    return [
        row
        for one in hosts
        if one.status.inventory is not None
        for row in _rows(one.metadata.name, [*one.status.inventory.devices, *_missing(one, nodes)])
    ]


def _missing(host: Host, nodes: Sequence[Object]) -> list[Device]:
    """What a host's nodes have lost is not in its inventory: nobody sees it any more."""
    return [
        device
        for node in nodes
        if isinstance(node, StorageNode) and node.status.host == host.metadata.name
        for device in node.status.devices
        if device.state == MISSING
    ]


async def _here() -> list[dict[str, Any]]:
    from quartermaster.host import gather_facts, open_host
    from quartermaster.host.places import device_root, host_name, state_directory
    from quartermaster.orchestration.inventory import inventory_of

    machine = open_host(state_directory(), device_root=device_root())
    # Which file systems are ours is known to the store alone: here they are somebody's data like any others.
    inventory = inventory_of(await machine.devices.discover(), (), await gather_facts(machine.commands))
    return _rows(host_name(), inventory.devices)


def _rows(host: str, devices: Sequence[Device]) -> list[dict[str, Any]]:
    return [
        {
            "host": host,
            "path": device.path,
            "size": of_bytes(Amount.of(device.size).bytes) if device.size is not None else "",
            "type": {True: "disk", False: "flash", None: ""}[device.rotational],
            "id": device.id,
            "serial": device.serial,
            "state": device.state,
            "reason": device.reason,
            "message": device.message,
        }
        for device in devices
    ]


def _next_steps(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Disks with what can be done about them, once for all of the same kind; of some there is nothing to be done."""
    paths: dict[str, list[str]] = {}
    for row in rows:
        if step := _NEXT_STEPS.get(row["reason"]):
            paths.setdefault(step, []).append(f"{row['host']} {row['path']}")
    return [f"{_few(found)}: {step}" for step, found in paths.items()]


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"{', '.join(paths[:_NAMED])}{more}"


def _cell(row: dict[str, Any], header: str) -> str:
    if header == "SIZE" and row["size"]:
        # To the whole MiB: the last bytes of a disk are nobody's concern.
        return of_bytes(Amount.of(row["size"]).bytes // _ROUNDED * _ROUNDED)
    return " ".join(str(row[header.lower()]).split()) or NONE
