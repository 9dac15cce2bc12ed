"""Why an object that was deleted is still there, and what somebody can do about it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from quartermaster.resources import Object, PersistentVolume, PersistentVolumeClaim, StorageNode
from quartermaster.support.errors import NotFoundError, QuartermasterError

if TYPE_CHECKING:
    from quartermaster.stores import Store


async def why_held(store: Store, obj: Object) -> str:
    """For people. What cannot be found out is left out: the finalizers alone say something."""
    names = obj.metadata.finalizers
    if not names:
        return "nothing; it is about to go"
    told = []
    for ask in (_why, _why_nobody):
        with suppress(QuartermasterError):
            told.append(await ask(store, obj))
    why = "; ".join(filter(None, told))
    return f"finalizer{'s' if len(names) > 1 else ''} {', '.join(names)}" + (f" ({why})" if why else "")


async def _why(store: Store, obj: Object) -> str:
    if isinstance(obj, PersistentVolumeClaim):
        return await _of_claim(store, obj)
    if isinstance(obj, PersistentVolume):
        return await _of_volume(store, obj)
    if isinstance(obj, StorageNode):
        return await _of_node(store, obj)
    return str(getattr(getattr(obj, "status", None), "message", ""))


async def _why_nobody(store: Store, obj: Object) -> str:
    """Where it waits for the leader. On Kubernetes claims and volumes are protected by others."""
    from quartermaster.cli.leading import somebody_leads
    from quartermaster.provisioning.protocol import CLAIM_PROTECTION, VOLUME_FINALIZER, VOLUME_PROTECTION
    from quartermaster.resources.marks import DOMAIN

    ours = (CLAIM_PROTECTION, VOLUME_FINALIZER, VOLUME_PROTECTION) if store.fences else ()
    if not any(name in ours or name.startswith(f"{DOMAIN}/") for name in obj.metadata.finalizers):
        return ""
    return "" if await somebody_leads(store, None) else "nobody leads who could let it go; `qm up` starts this host"


async def _of_claim(store: Store, claim: PersistentVolumeClaim) -> str:
    from quartermaster.provisioning.protocol import PROVISIONED, find_condition

    try:
        volume = await store.get(PersistentVolume, claim.spec.volume_name) if claim.spec.volume_name else None
    except NotFoundError:
        volume = None
    mounted = _mounts(volume, claim.metadata.name) if volume is not None else ""
    if mounted or volume is None:
        waits = find_condition(claim.status.conditions, PROVISIONED)
        return mounted or (waits.message if waits is not None else "")
    return "" if store.fences else f"`kubectl describe pvc {claim.metadata.name}` says which Pods use it"


async def _of_volume(store: Store, volume: PersistentVolume) -> str:
    """Where it is mounted, or what whoever is to delete it says."""
    from quartermaster.provisioning.intent import record_of
    from quartermaster.resources.orchestration import FAILED, Assignment

    reference, record = volume.spec.claim_ref, record_of(volume)
    mounted = _mounts(volume, reference.name if reference is not None else "")
    if mounted or record is None:
        return mounted
    asked = (await store.list(Assignment, record.cluster.namespace)).items
    failed = [one for one in asked if one.spec.instance == record.volume.name and one.status.state == FAILED]
    return "; ".join(one.status.message for one in failed if one.spec.absent)


def _mounts(volume: PersistentVolume, claim: str) -> str:
    from quartermaster.provisioning.protocol import mounts_of

    told = []
    for host, paths in mounts_of(volume).items():
        place = f"mounted on {host or 'some host'} at {', '.join(paths)}"
        what = claim if claim and len(paths) > 1 else paths[0]
        told.append(f"{place}: `qm volume unmount {what}` there ends it" if host else place)
        if host and claim:
            told.append(f"if {host} is gone for good, `qm volume unmount {claim} --gone {host}` does")
    return "; ".join(told)


async def _of_node(store: Store, node: StorageNode) -> str:
    from quartermaster.cli.hearing import is_given_up_by, listen_for_node
    from quartermaster.planning.outcomes import giving_up

    message, advice = node.status.message, giving_up(node.metadata.name)
    if not node.status.host or advice in message or not is_given_up_by(await listen_for_node(store, node), node):
        return message
    lost = f"host {node.status.host} does not answer; {advice}"
    return f"{message}; {lost}" if message else lost
