"""Claims with their volumes as one table: what a person asks who looks for space, or for where something is. Volumes
whose claims are gone are in it, by the names of these, until they are gone as well.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

import click

from quartermaster.cli.finding import Query, list_whole
from quartermaster.cli.output import Output, format_document, nothing_found, parse_output
from quartermaster.cli.session import Session
from quartermaster.cli.tables import NONE, Writer, age
from quartermaster.cli.whereabouts import hosts_of
from quartermaster.planning.health import LOST, SILENT
from quartermaster.provisioning.binding import why_classless
from quartermaster.provisioning.intent import record_of
from quartermaster.provisioning.protocol import DELETE, PROVISIONED, RESIZING, STORAGE, find_condition, mounts_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import FAILED, Assignment, Host
from quartermaster.support.errors import ForbiddenError, NotFoundError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_COLUMNS = ("NAME", "STATUS", "SIZE", "CLASS", "HOSTS", "MOUNTED", "AGE", "MESSAGE")
_WIDE = (*_COLUMNS[:-1], "VOLUME", "MODES", "MESSAGE")


async def show_volumes(session: Session, *, all_namespaces: bool, output: str) -> None:
    form = parse_output(output)
    if form.form not in ("", "wide", "yaml", "json"):
        raise UsageError(f'cannot print volumes as "{output}"', hint="-o takes wide, yaml or json")
    async with session.store(reads_only=True) as store:
        namespace = None if all_namespaces else session.namespace(store)
        rows = await volume_rows(store, namespace)
    if form.is_table and not rows:
        click.echo(nothing_found([PersistentVolumeClaim], namespace), err=True)
        return
    click.echo(_formatted(rows, form, with_namespace=all_namespaces), nl=False)


async def volume_rows(store: Store, namespace: str | None) -> list[dict[str, Any]]:
    claims = (await list_whole(store, PersistentVolumeClaim, Query(namespace))).objects
    volumes = {one.metadata.name: one for one in (await list_whole(store, PersistentVolume, Query(None))).objects}
    broken = _broken(await _if_allowed(store, Assignment) or ())
    hosts = await _if_allowed(store, Host) or ()
    silent = [one.metadata.name for one in hosts if isinstance(one, Host) and one.status.state in (SILENT, LOST)]
    classes = await _if_allowed(store, StorageClass)
    places = await hosts_of(store, [one for one in volumes.values() if isinstance(one, PersistentVolume)])
    rows = []
    for claim in claims:
        if isinstance(claim, PersistentVolumeClaim):
            volume = volumes.get(claim.spec.volume_name)
            bound = volume if isinstance(volume, PersistentVolume) else None
            there = places.get(claim.spec.volume_name, ())
            wrong = broken.get(claim.spec.volume_name, "") or _out_of_reach(there, silent)
            waits = _said(claim) or _volumeless(claim, bound) or _classless(claim, classes)
            rows.append(_row(claim, bound, there, wrong or waits))
    claimed = {claim.metadata.uid for claim in claims}
    known = [one for one in volumes.values() if isinstance(one, PersistentVolume)]
    left = [(one, one.metadata.name) for one in known if _is_left(one, claimed, namespace)]
    return rows + [_row_of_left(one, places.get(name, ()), broken.get(name, "")) for one, name in left]


def _is_left(volume: PersistentVolume, claims: Container[str], namespace: str | None) -> bool:
    """One that we have made, and whose claim is gone."""
    claim = volume.spec.claim_ref
    if record_of(volume) is None or claim is None or not claim.uid or claim.uid in claims:
        return False
    return namespace in (None, claim.namespace)


def _row_of_left(volume: PersistentVolume, hosts: Sequence[str], wrong: str) -> dict[str, Any]:
    claim, policy = volume.spec.claim_ref, volume.spec.persistent_volume_reclaim_policy
    becomes = "it is being deleted" if policy == DELETE else f"it is kept ({policy})"
    return {
        "namespace": claim.namespace if claim is not None else "",
        "name": claim.name if claim is not None else "",
        "status": volume.status.phase or "Unseen",
        "size": str(volume.spec.capacity.get(STORAGE, "")),
        "class": volume.spec.storage_class_name,
        "volume": volume.metadata.name,
        "hosts": list(hosts),
        "mounted": {host: list(paths) for host, paths in mounts_of(volume).items()},
        "modes": list(volume.spec.access_modes),
        "created": volume.metadata.creation_timestamp or "",
        "message": f"the claim of {volume.metadata.name} is gone, and {becomes}" + (f": {wrong}" if wrong else ""),
    }


async def _if_allowed(store: Store, kind: type[Object]) -> Sequence[Object] | None:
    """Who may see claims and volumes gets their table; what else is known only adds to its messages."""
    try:
        return (await list_whole(store, kind, Query(None))).objects
    except (ForbiddenError, NotFoundError):
        return None


def _broken(assignments: Sequence[Object]) -> dict[str, str]:
    """By volume: what its agent says that cannot find it whole any more."""
    return {
        one.spec.instance: one.status.message
        for one in assignments
        if isinstance(one, Assignment) and one.status.state == FAILED
    }


def _out_of_reach(hosts: Sequence[str], silent: Sequence[str]) -> str:
    if not hosts or not all(host in silent for host in hosts):
        return ""
    return f"{' and '.join(hosts)} {'does' if len(hosts) == 1 else 'do'} not report: it cannot be used"


def _classless(claim: PersistentVolumeClaim, classes: Sequence[Object] | None) -> str:
    known = [one for one in classes or () if isinstance(one, StorageClass)]
    return why_classless(claim, known) if classes is not None else ""


def _volumeless(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> str:
    name = claim.spec.volume_name
    return f'it names the volume "{name}", and there is none of that name' if name and volume is None else ""


def _said(claim: PersistentVolumeClaim) -> str:
    conditions = claim.status.conditions
    said = find_condition(conditions, PROVISIONED) or find_condition(conditions, RESIZING)
    return said.message if said is not None else ""


def _row(
    claim: PersistentVolumeClaim, volume: PersistentVolume | None, hosts: Sequence[str], message: str
) -> dict[str, Any]:
    deleting = claim.metadata.deletion_timestamp is not None
    return {
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "status": "Terminating" if deleting else claim.status.phase or "Unseen",
        "size": str(claim.status.capacity.get(STORAGE) or claim.spec.resources.requests.get(STORAGE, "")),
        "class": claim.spec.storage_class_name or "",
        "volume": claim.spec.volume_name,
        "hosts": list(hosts),
        "mounted": {host: list(paths) for host, paths in mounts_of(volume).items()} if volume is not None else {},
        "modes": list(claim.spec.access_modes),
        "created": claim.metadata.creation_timestamp or "",
        "message": message,
    }


def _formatted(rows: list[dict[str, Any]], form: Output, *, with_namespace: bool) -> str:
    if not form.is_table:
        return format_document(form, {"volumes": rows})
    headers = _WIDE if form.form == "wide" else _COLUMNS
    writer = Writer((*(("NAMESPACE",) if with_namespace else ()), *headers))
    return writer.format(
        [*((row["namespace"],) if with_namespace else ()), *(_cell(row, header) for header in headers)] for row in rows
    )


def _cell(row: dict[str, Any], header: str) -> str:
    if header == "AGE":
        return age(row["created"])
    value = row[header.lower()]
    if header == "MOUNTED":
        value = [f"{host}:{path}" for host, paths in value.items() for path in paths]
    text = ",".join(value) if isinstance(value, list) else " ".join(str(value).split())
    return text or NONE
