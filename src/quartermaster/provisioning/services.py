"""What the leader runs for claims: provisioning, growth, deletion, mounts, the scan, a binder where one is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quartermaster.backends.base import Backend
from quartermaster.engine import Controller, Request, Service, mapped
from quartermaster.provisioning.binder import ClaimBinder, VolumeBinder
from quartermaster.provisioning.deleter import Deleter
from quartermaster.provisioning.mounter import Mounter
from quartermaster.provisioning.orphans import OrphanScan
from quartermaster.provisioning.protocol import volume_name
from quartermaster.provisioning.provisioner import Provisioner
from quartermaster.provisioning.term import Setup, Terms, Views, Wakes
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from quartermaster.resources.marks import INTENT
from quartermaster.resources.mounts import Mount
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.resources.storage import StorageStatus
from quartermaster.support.backoff import Backoff

BACKOFF = Backoff(first_s=1.0, limit_s=300.0)


def claims_controller(
    namespace: str, backends: Iterable[Backend], views: Views, *, bind: bool, scan_every_s: float = 300.0
) -> Sequence[Service]:
    """Everything that claims need, for the clusters of one namespace; add all of it to a runtime.

    `bind` where nobody else binds claims to volumes: on our own stores. On Kubernetes its own controller does.
    """
    served = list(backends)
    setup = Setup(
        namespace=namespace,
        drivers={backend.type: backend.volumes() for backend in served},
        views=views,
        agents=[agent.name for backend in served for agent in backend.agents()],
        scheduled=not bind,
    )
    terms = Terms(setup)
    services: list[Service] = [
        _provisioning(terms),
        _deletion(terms),
        _mounts(terms),
        OrphanScan(terms, every_s=scan_every_s),
    ]
    if bind:
        services += [_claim_binding(terms), _volume_binding(terms)]
    return services


def _provisioning(terms: Terms) -> Service:
    wakes = Wakes()
    namespace = terms.setup.namespace
    return Controller(
        "claims",
        PersistentVolumeClaim,
        lambda scope: Provisioner(terms.of(scope), wakes),
        watches=(
            mapped(Assignment, wakes.of_assignment, namespace=namespace),
            mapped(PersistentVolume, wakes.of_volume),
            mapped(PersistentVolume, wakes.of_room, predicate=_went),
            mapped(PersistentVolumeClaim, wakes.of_room_promised, predicate=_took_back),
            mapped(StorageClass, wakes.of_class),
            mapped(StorageStatus, wakes.of_status, namespace=namespace),
            mapped(Host, _nobody, namespace=namespace),
        ),
        backoff=BACKOFF,
    )


def _deletion(terms: Terms) -> Service:
    def volume_of(assignment: Assignment) -> Iterator[Request]:
        if assignment.spec.instance:
            yield Request("", assignment.spec.instance)

    return Controller(
        "volumes",
        PersistentVolume,
        lambda scope: Deleter(terms.of(scope)),
        watches=(mapped(Assignment, volume_of, namespace=terms.setup.namespace),),
        backoff=BACKOFF,
    )


def _mounts(terms: Terms) -> Service:
    def mounts_of(claim: PersistentVolumeClaim) -> Iterator[Request]:
        if terms.current is not None:
            yield from terms.current.mounts_for(claim.key)

    namespace = terms.setup.namespace
    return Controller(
        "mounts",
        Mount,
        lambda scope: Mounter(terms.of(scope)),
        watches=(
            mapped(PersistentVolumeClaim, mounts_of),
            mapped(StorageClass, _nobody),
            mapped(Host, _nobody, namespace=namespace),
        ),
        namespace=namespace,
    )


def _claim_binding(terms: Terms) -> Service:
    wakes = Wakes()
    return Controller(
        "bind-claims",
        PersistentVolumeClaim,
        lambda scope: ClaimBinder(terms.of(scope), wakes),
        watches=(
            mapped(PersistentVolume, wakes.of_volume),
            mapped(PersistentVolume, wakes.of_room, predicate=_is_free),
            mapped(StorageClass, wakes.of_class),
            mapped(Host, _nobody, namespace=terms.setup.namespace),
        ),
    )


def _volume_binding(terms: Terms) -> Service:
    def volumes_of(claim: PersistentVolumeClaim) -> Iterator[Request]:
        yield Request("", claim.spec.volume_name or volume_name(claim))
        if terms.current is not None:
            yield from terms.current.volumes_for(claim.key)

    return Controller(
        "bind-volumes",
        PersistentVolume,
        lambda scope: VolumeBinder(terms.of(scope)),
        watches=(mapped(PersistentVolumeClaim, volumes_of),),
    )


def _nobody(_read: Host | StorageClass) -> Iterator[Request]:
    """It is read; a change of it is no reason to look again."""
    return iter(())


def _went(_old: PersistentVolume | None, new: PersistentVolume | None) -> bool:
    return new is None


def _took_back(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> bool:
    """What was promised to a claim is free again, or is a volume's by now."""
    if old is None or INTENT not in old.metadata.annotations:
        return False
    return new is None or INTENT not in new.metadata.annotations


def _is_free(_old: PersistentVolume | None, new: PersistentVolume | None) -> bool:
    return new is not None and new.spec.claim_ref is None
