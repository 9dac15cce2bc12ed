"""Checking a pool cluster of a file against the contract of OpenEBS, and saying what it would refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from quartermaster.backends.cstor.contract import World, check
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.report import counted
from quartermaster.backends.cstor.view import pools_of
from quartermaster.cli.given import read_given
from quartermaster.cli.output import format_document, parse_output
from quartermaster.cli.planning import read_kinds
from quartermaster.resources import from_document
from quartermaster.resources.admission import class_of
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.manifests import Manifest
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    OPENEBS_NAMESPACE,
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
from quartermaster.resources.schema import full_schema_of
from quartermaster.resources.validation import misspelt
from quartermaster.support.errors import NotFoundError, Problem, UsageError

if TYPE_CHECKING:
    from quartermaster.cli.session import Session

_SEEN = (Node, BlockDevice, BlockDeviceClaim, CStorPoolInstance, CStorVolumeReplica)


async def check_file(session: Session, file: str, *, against: str | None, live: bool, output: str) -> int:
    form = parse_output(output)
    manifests = read_given([file])
    given = _typed(manifests)
    clusters = [obj for obj in given if isinstance(obj, CStorPoolCluster)]
    if not clusters:
        raise UsageError(f"cannot find a CStorPoolCluster in {file}", hint="`qm explain cspc` shows its fields")
    present = _typed(read_given([against])) if against else []
    if live:
        present = await _read_store(session)
        if not present:
            raise NotFoundError(
                "cannot check against the store: it has neither nodes nor block devices nor pool clusters",
                hint="--store names another one; without --live the file alone is checked",
            )
    around = [obj for obj in (*present, *given) if isinstance(obj, _SEEN)]
    old = {obj.metadata.name: obj for obj in present if isinstance(obj, CStorPoolCluster)}
    found: list[tuple[CStorPoolCluster, list[Problem]]] = []
    for cluster in clusters:
        before = old.get(cluster.metadata.name)
        found.append((cluster, check(cluster, before, _world(cluster, before, around))))
    _warn_of_slips(manifest for manifest in manifests if class_of(manifest.document) is CStorPoolCluster)
    if form.is_table:
        _tell(found, looked=bool(around))
    else:
        listed = [
            {
                "name": cluster.metadata.name,
                "accepted": not problems,
                "problems": [{"path": p.path, "message": p.message, "fix": p.fix} for p in problems],
            }
            for cluster, problems in found
        ]
        click.echo(format_document(form, {"poolClusters": listed, "lookedAtDisks": bool(around)}), nl=False)
    return 1 if any(problems for _, problems in found) else 0


def _typed(manifests: Iterable[Manifest]) -> list[Object]:
    known = ((class_of(manifest.document), manifest.document) for manifest in manifests)
    return [from_document(cls, document) for cls, document in known if not isinstance(cls, Problem)]


def _warn_of_slips(manifests: Iterable[Manifest]) -> None:
    """OpenEBS has more fields than are known here, and drops those that it does not know without a word."""
    for manifest in manifests:
        for problem in misspelt(manifest.document, full_schema_of(CStorPoolCluster)):
            click.echo(f"note: {manifest.document['metadata']['name']}: {problem}", err=True)


async def _read_store(session: Session) -> list[Object]:
    async with session.store(reads_only=True) as store:
        return await read_kinds(store, (CStorPoolCluster, *_SEEN))


def _world(cluster: CStorPoolCluster, old: CStorPoolCluster | None, around: Iterable[Object]) -> World | None:
    around = list(around)
    if not any(isinstance(obj, Node | BlockDevice) for obj in around):
        return None
    inventory = Inventory(around)
    claims = {obj.spec.block_device_name: obj for obj in around if isinstance(obj, BlockDeviceClaim)}
    instances = [obj for obj in around if isinstance(obj, CStorPoolInstance)]
    replicas = [obj for obj in around if isinstance(obj, CStorVolumeReplica)]
    pools, _ = pools_of(old, instances, replicas, inventory)
    # Devices are where the pool cluster is; a file may leave that out.
    namespace = cluster.metadata.namespace or OPENEBS_NAMESPACE
    return World(inventory, namespace, claims, {pool.host: pool.replicas for pool in pools})


def _tell(found: Sequence[tuple[CStorPoolCluster, list[Problem]]], *, looked: bool) -> None:
    for cluster, problems in found:
        if problems:
            click.echo(f"{cluster.metadata.name}: OpenEBS would refuse it")
            for problem in problems:
                click.echo(f"  {problem}")
        else:
            click.echo(f"{cluster.metadata.name}: {counted(len(cluster.spec.pools), 'pool')}, fine")
    if not looked:
        click.echo("note: nodes and disks were not looked at; --live takes them from the store", err=True)
