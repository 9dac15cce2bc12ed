"""Asks every host what runs there, shows the objects that this means, and writes those that are missing.

While they are written the operator only observes, as after a restore: to a leader that sees half of them, a brick of a
volume that is not written yet would be one that nobody wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quartermaster.backends.assigning import first_assignment
from quartermaster.backends.base import AdoptedVolume, Adopter, Adoption, CanAdopt, VolumeDriver
from quartermaster.backends.registry import backend_of, installed_backends
from quartermaster.cli.holding import with_marks
from quartermaster.cli.progress import Status
from quartermaster.cli.session import Session
from quartermaster.operators.memory import amend_memory
from quartermaster.orchestration.restoring import observe_only
from quartermaster.planning.cluster import ClusterKey, Desired
from quartermaster.planning.health import READY
from quartermaster.planning.matching import addresses_of
from quartermaster.provisioning.intent import Intent
from quartermaster.provisioning.protocol import RETAIN, capacity
from quartermaster.provisioning.volumes import persistent_volume
from quartermaster.resources import marks
from quartermaster.resources.codec import from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.model import Object
from quartermaster.resources.orchestration import (
    FAILED,
    SUCCEEDED,
    Assignment,
    Host,
    assignment_name,
)
from quartermaster.stores.modify import modify
from quartermaster.support.deadlines import within
from quartermaster.support.errors import AlreadyExistsError, InvalidError, NotFoundError, Problem, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_LOOK_S = 0.2
_DEADLINE_S = 180.0
_WHY = "objects are being written by `qm adopt`"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    cluster: str = ""
    lost: tuple[str, ...] = ()
    write: bool = False
    timeout_s: float = 60.0


async def adopt_cluster(session: Session, wish: Wish) -> None:
    adopter = _adopter_of(wish.type)
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        hosts = (await store.list(Host, namespace)).items
        surveys, silent = await _surveys(store, namespace, hosts, adopter.survey, wish.timeout_s)
        addresses = {host.metadata.name: addresses_of(host) for host in hosts}
        found = adopter.adopt(surveys, namespace, cluster=wish.cluster, lost=wish.lost, addresses=addresses)
        mistakes = [*silent, *found.mistakes]
        for line in (*found.shown, *(f"note: {note}" for note in found.notes)):
            click.echo(line)
        if mistakes:
            raise InvalidError(
                f"cannot adopt {found.key.status_name}",
                [Problem("", mistake) for mistake in mistakes],
                hint="nothing was written",
            )
        if not wish.write:
            click.echo("nothing was written; --yes writes it", err=True)
            return
        async with _held(store, namespace):
            written = await _write(store, found, adopter, backend_of(wish.type).volumes())
    for name in written:
        click.echo(f"{name} written")
    if not written:
        click.echo("all of it was there already")


def _adopter_of(type: str) -> Adopter:
    backend = backend_of(type)
    if not isinstance(backend, CanAdopt):
        able = [one.type for one in installed_backends() if isinstance(one, CanAdopt)]
        raise UsageError(
            f"cannot adopt a cluster of {type}: what runs of it does not say what it is",
            hint=f"there are {', '.join(able) or 'none'} that do",
        )
    return backend.adopter()


async def _surveys(
    store: Store, namespace: str, hosts: Sequence[Host], survey: str, timeout_s: float
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What every host told, and who did not."""
    if not hosts:
        raise UsageError(
            f"cannot adopt anything: {namespace} has no hosts",
            hint="`qm up` on one host and `qm join` on the others come first",
        )
    asked = [host.metadata.name for host in hosts if host.status.state == READY]
    troubles = [
        f"host {host.metadata.name} is silent: bring it up, or `qm delete host` it"
        for host in hosts
        if host.metadata.name not in asked
    ]
    try:
        for host in asked:
            await _unasked(store, namespace, host, survey)
            await store.create(first_assignment(namespace, Desired(host, survey, {}, deadline_s=_DEADLINE_S)))
        answers = await _answers(store, namespace, asked, survey, timeout_s)
    finally:
        for host in asked:
            await _unasked(store, namespace, host, survey)
    told: dict[str, dict[str, Any]] = {}
    for host in asked:
        answer = answers.get(host)
        if answer is None:
            troubles.append(f"host {host} has not answered within {timeout_s:g} s")
        elif answer.status.state == FAILED:
            troubles.append(f"host {host}: {answer.status.message}")
        else:
            told[host] = answer.status.result or {}
    return told, troubles


async def _answers(
    store: Store, namespace: str, hosts: Sequence[str], survey: str, timeout_s: float
) -> dict[str, Assignment]:
    answers: dict[str, Assignment] = {}
    with Status("asking hosts") as status, suppress(TimeoutError):
        async with within(timeout_s):
            while missing := [host for host in hosts if host not in answers]:
                for host in missing:
                    found = await store.get(Assignment, assignment_name(survey, host), namespace)
                    current = found.status.observed_generation == found.spec.generation
                    if current and found.status.state in (SUCCEEDED, FAILED):
                        answers[host] = found
                status.show(f"{len(answers)} of {len(hosts)}")
                await asyncio.sleep(_LOOK_S)
    return answers


async def _unasked(store: Store, namespace: str, host: str, survey: str) -> None:
    with suppress(NotFoundError):
        await store.delete(Assignment, assignment_name(survey, host), namespace)


@asynccontextmanager
async def _held(store: Store, namespace: str) -> AsyncIterator[None]:
    """An operator that only observed before goes on doing so. Cut off in between, it observes until `qm resume`."""
    before = await _observes(store, namespace)
    if not before:
        await observe_only(store, namespace, _WHY)
    yield
    if not before:
        await modify(
            store, ConfigMap, marks.SETTINGS_NAME, namespace, lambda one: with_marks(one, {marks.OBSERVE_ONLY: ""})
        )


async def _observes(store: Store, namespace: str) -> bool:
    with suppress(NotFoundError):
        found = await store.get(ConfigMap, marks.SETTINGS_NAME, namespace)
        return found.metadata.annotations.get(marks.OBSERVE_ONLY, _WHY) != _WHY
    return False


async def _write(store: Store, found: Adoption, adopter: Adopter, driver: VolumeDriver) -> list[str]:
    """Nodes come last: nothing is planned for a host before its node is there."""
    written: list[str] = []
    for volume in found.volumes:
        written += await _write_volume(store, found.key, volume, driver)
    if found.given_up:
        await amend_memory(store, found.key, lambda memory: adopter.remember(memory, found))
    for desired in found.assignments:
        written += await _create(store, first_assignment(found.key.namespace, desired))
    for node in found.nodes:
        written += await _create(store, node)
    return written


async def _write_volume(store: Store, key: ClusterKey, adopted: AdoptedVolume, driver: VolumeDriver) -> list[str]:
    written: list[str] = []
    name = adopted.volume.name
    claim = _claim(key, adopted)
    if claim is not None:
        written += await _create(store, claim)
        claim = await store.get(PersistentVolumeClaim, claim.metadata.name, claim.metadata.namespace)
        if claim.spec.volume_name != name:
            click.echo(f"note: the claim {adopted.claim} has another volume; {name} stays without one", err=True)
            claim = None
    source = driver.source(adopted.volume, {"volume": name})
    intent = Intent(key, adopted.volume, RETAIN, key.class_name)
    return written + await _create(store, _volume(intent, source, claim))


def _volume(intent: Intent, source: Mapping[str, object], claim: PersistentVolumeClaim | None) -> PersistentVolume:
    made = persistent_volume(claim or _anybody(intent), intent, source)
    return (
        made
        if claim is not None
        else msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, claim_ref=None))
    )


def _anybody(intent: Intent) -> PersistentVolumeClaim:
    """What a volume without a claim can be claimed as."""
    return from_document(
        PersistentVolumeClaim,
        {"metadata": {"name": intent.volume.name, "namespace": "default"}, "spec": {"accessModes": ["ReadWriteMany"]}},
    )


def _claim(key: ClusterKey, adopted: AdoptedVolume) -> PersistentVolumeClaim | None:
    namespace, _, name = adopted.claim.partition("/")
    if not name:
        return None
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": key.class_name,
        "volumeName": adopted.volume.name,
        "resources": {"requests": capacity(adopted.volume.size)},
    }
    return from_document(PersistentVolumeClaim, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


async def _create(store: Store, obj: Object) -> list[str]:
    """Its name, if it was not there already."""
    with suppress(AlreadyExistsError):
        await store.create(obj)
        return [f"{kind_of(type(obj)).singular}/{obj.metadata.name}"]
    return []
