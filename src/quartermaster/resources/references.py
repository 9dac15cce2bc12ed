"""Owner references and finalizers, as values: every function returns what the metadata should be."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object, OwnerReference
from quartermaster.support.errors import InvalidError

T = TypeVar("T", bound=Object)

# The finalizers by which an owner waits until something has become of its dependants.
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def owner_reference(owner: Object, *, controller: bool = True, block_deletion: bool = True) -> OwnerReference:
    """The reference by which an object says that it goes when `owner` goes."""
    info = kind_of(owner)
    if not owner.metadata.uid:
        raise InvalidError(f'cannot refer to {info.kind} "{owner.metadata.name}" as owner: it was not stored yet')
    return OwnerReference(
        api_version=info.api_version,
        kind=info.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True if controller else None,
        block_owner_deletion=True if block_deletion else None,
    )


def with_owner(obj: T, owner: Object, *, controller: bool = True) -> T:
    """The object, owned by `owner`. InvalidError where Kubernetes would not honour that."""
    here, there = obj.metadata.namespace, owner.metadata.namespace
    if there and here != there:
        raise InvalidError(
            f'cannot make {kind_of(owner).kind} "{owner.key}" the owner of {kind_of(obj).kind} "{obj.key}": '
            "an owner is in the same namespace, or in none"
        )
    reference = owner_reference(owner, controller=controller)
    others = tuple(r for r in obj.metadata.owner_references if r.uid != reference.uid)
    rival = controller_of(obj)
    if controller and rival is not None and rival.uid != reference.uid:
        raise InvalidError(
            f'cannot make {kind_of(owner).kind} "{owner.key}" the controller of {kind_of(obj).kind} "{obj.key}": '
            f'{rival.kind} "{rival.name}" is'
        )
    if reference in obj.metadata.owner_references:
        return obj
    return _with_metadata(obj, owner_references=(*others, reference))


def controller_of(obj: Object) -> OwnerReference | None:
    """The one owner that manages the object."""
    return next((reference for reference in obj.metadata.owner_references if reference.controller), None)


def is_owned_by(obj: Object, uid: str) -> bool:
    return any(reference.uid == uid for reference in obj.metadata.owner_references)


def has_finalizer(obj: Object, finalizer: str) -> bool:
    return finalizer in obj.metadata.finalizers


def add_finalizer(obj: T, finalizer: str) -> T:
    """The object with the finalizer; the same object if it has it."""
    if finalizer in obj.metadata.finalizers:
        return obj
    return _with_metadata(obj, finalizers=(*obj.metadata.finalizers, finalizer))


def remove_finalizer(obj: T, finalizer: str) -> T:
    """The object without the finalizer; the same object if it has none."""
    if finalizer not in obj.metadata.finalizers:
        return obj
    return _with_metadata(obj, finalizers=tuple(f for f in obj.metadata.finalizers if f != finalizer))


def _with_metadata(obj: T, **changes: object) -> T:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))
