"""The shape that every object has: metadata as Kubernetes has it, and room for what a newer version wrote.

Structs are frozen; change one with `msgspec.structs.replace`. A field that is unset is None, "" or empty and is not
written. API defaults (zone 1) are therefore not defaults of the struct: they are declared (`declare`) and put into the
document when it is admitted, so that what a user stated and what was filled in look the same afterwards.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, dataclass_transform

import msgspec
from msgspec import Meta, field

from quartermaster.resources.declare import ATOMIC, SET, by, declare

# No field of an API is spelled like this (it begins with DEL), so it cannot collide.
UNKNOWN_KEY = "\u007funknown"

Time = Annotated[str, Meta(extra={"schema": {"format": "date-time"}})]


# Type checkers do not see that subclasses inherit these settings unless told so.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every part of an object.

    Frozen trees have no cycles, so Python's cycle collector need not walk them: with 50,000 objects in a cache that
    walk is a third of the cost of a list.
    """


class OwnerReference(Struct):
    atomic: ClassVar[bool] = True

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Struct):
    """Which manager owns which fields, in the form in which an API server writes it."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str = ""
    fields_type: str = ""
    fields_v1: dict[str, Any] = field(default_factory=dict)
    subresource: str = ""


class ObjectMeta(Struct):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: Annotated[tuple[OwnerReference, ...], by("uid")] = ()
    finalizers: Annotated[tuple[str, ...], SET] = ()
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...], ATOMIC] = ()


class Object(Struct, kw_only=True):
    """Base of every kind. `unknown` holds the fields that this version has no name for; it is written back."""

    metadata: ObjectMeta = ObjectMeta()
    unknown: dict[str, Any] = field(default_factory=dict, name=UNKNOWN_KEY)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """Names one object among those of its kind. A cluster-scoped object has the namespace ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))


class Condition(Struct):
    """As Kubernetes has it; a list of them is a map by type."""

    type: Annotated[str, declare("What the condition is about, one word in CamelCase.", max_length=316)]
    status: Annotated[str, declare("Whether it holds.", enum=("True", "False", "Unknown"))]
    reason: Annotated[str, declare("Why, one word in CamelCase that programs may rely on.", max_length=1024)] = ""
    message: Annotated[str, declare("Why, as a sentence for people.", max_length=32768)] = ""
    last_transition_time: Annotated[Time | None, declare("When the status last changed.")] = None
    observed_generation: Annotated[int | None, declare("The metadata.generation that was looked at.", minimum=0)] = None


Conditions = Annotated[tuple[Condition, ...], declare("What is known of its state, by type.", keys=("type",))]
