"""How a field is declared: its sentence, and what else holds for it, said once.

The schema of the CRD, the checks of admission, defaults, immutability and the merge rules of apply are all read from
these declarations. They do not restrict what the struct can hold: a stored value that a newer version allowed can
still be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

Immutable = Literal["", "always", "once set"]

_NOTHING: Final = object()

PATTERN_SENTENCES: Final[dict[str, str]] = {}


def declare(
    description: str = "",
    *,
    default: Any = _NOTHING,
    immutable: Immutable = "",
    list_type: Literal["", "atomic", "set", "map"] = "",
    keys: Sequence[str] = (),
    atomic_map: bool | None = None,
    format: str = "",
    enum: Sequence[str] = (),
    pattern: str = "",
    says: str = "",
    cel: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    max_items: int | None = None,
) -> Meta:
    """The declaration of one field, to stand in `Annotated[…]`.

    `default` is the API's default: it is put into the document when that is admitted. `immutable` "always" lets the
    field neither change nor come nor go; "once set" lets it come. `atomic_map` says whether an object is owned as a
    whole, whatever its struct says. `says` is the sentence for what does not fit the pattern. `cel` is a check of
    this one value, of those that `resources.validation` knows in Python as well.
    """
    if pattern and says:
        PATTERN_SENTENCES[pattern] = says
    schema = {
        "format": format,
        "enum": list(enum),
        "pattern": pattern,
        "minimum": minimum,
        "maximum": maximum,
        "minLength": min_length,
        "maxLength": max_length,
        "maxItems": max_items,
    }
    extra: dict[str, Any] = {
        "description": description,
        "immutable": immutable,
        "list_type": list_type or ("map" if keys else ""),
        "keys": tuple(keys),
        "cel": cel,
        "schema": {name: value for name, value in schema.items() if value not in ("", [], None)},
    }
    kept = {name: value for name, value in extra.items() if value}
    if atomic_map is not None:
        kept["atomic_map"] = atomic_map
    if default is not _NOTHING:
        kept["default"] = default
    return Meta(extra=kept)


def by(*keys: str) -> Meta:
    """A list that is a map: its elements are told apart by these fields."""
    return declare(keys=keys)


ATOMIC: Final = declare(list_type="atomic")
SET: Final = declare(list_type="set")

# "12Gi", 500: what Kubernetes calls a quantity; resources.quantity reads it. More digits than this mean nothing.
QUANTITY_PATTERN: Final = (
    r"^([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?$"
)
Quantity = Annotated[str | int, Meta(extra={"quantity": True})]
# Kinds of Kubernetes itself take 0.5 without quotes too; a CRD cannot.
NumberOrQuantity = Annotated[str | int, Meta(extra={"quantity": True, "fraction": True})]
IntOrString = Annotated[int | str, Meta(extra={"int_or_string": True})]
