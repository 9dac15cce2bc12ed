"""Owner references and finalizers as values."""

import pytest

from quartermaster.resources import ConfigMap, Namespace, ObjectMeta, OwnerReference
from quartermaster.resources.references import (
    add_finalizer,
    controller_of,
    has_finalizer,
    is_owned_by,
    owner_reference,
    remove_finalizer,
    with_owner,
)
from quartermaster.support.errors import InvalidError

OWNER = ConfigMap(metadata=ObjectMeta(name="owner", namespace="ns", uid="u1"))
OBJECT = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns"))


def test_a_reference_names_kind_version_name_and_uid() -> None:
    assert owner_reference(OWNER) == OwnerReference(
        api_version="v1", kind="ConfigMap", name="owner", uid="u1", controller=True, block_owner_deletion=True
    )
    assert owner_reference(OWNER, controller=False).controller is None


def test_an_object_that_was_not_stored_cannot_own() -> None:
    with pytest.raises(InvalidError, match="it was not stored yet"):
        owner_reference(OBJECT)


def test_owning_twice_changes_nothing() -> None:
    owned = with_owner(OBJECT, OWNER)
    assert is_owned_by(owned, "u1")
    assert with_owner(owned, OWNER) is owned


def test_an_object_has_one_controller() -> None:
    owned = with_owner(OBJECT, OWNER)
    rival = ConfigMap(metadata=ObjectMeta(name="rival", namespace="ns", uid="u2"))
    with pytest.raises(InvalidError, match='ConfigMap "owner" is'):
        with_owner(owned, rival)
    both = with_owner(owned, rival, controller=False)
    assert controller_of(both) == owner_reference(OWNER)


def test_an_owner_is_in_the_same_namespace_or_in_none() -> None:
    stranger = ConfigMap(metadata=ObjectMeta(name="x", namespace="other", uid="u3"))
    with pytest.raises(InvalidError, match="in the same namespace"):
        with_owner(OBJECT, stranger)
    everywhere = Namespace(metadata=ObjectMeta(name="ns", uid="u4"))
    assert is_owned_by(with_owner(OBJECT, everywhere), "u4")


def test_finalizers_are_added_and_removed_once() -> None:
    kept = add_finalizer(OBJECT, "example.org/a")
    assert has_finalizer(kept, "example.org/a")
    assert add_finalizer(kept, "example.org/a") is kept
    assert remove_finalizer(kept, "example.org/a").metadata.finalizers == ()
    assert remove_finalizer(OBJECT, "example.org/a") is OBJECT
