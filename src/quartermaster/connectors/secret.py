"""A secret that cannot be printed by accident: whoever wants the text has to say so."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from quartermaster.support.redaction import HIDDEN


class Secret:
    """Neither repr, str, format nor an encoder shows what is in it."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return HIDDEN if self._text else "''"

    __str__ = __repr__

    def __format__(self, _specification: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")


def secrets_in(value: Any) -> tuple[str, ...]:
    """Every secret text in a struct, at any depth."""
    if isinstance(value, Secret):
        return (value.reveal(),) if value else ()
    if isinstance(value, msgspec.Struct):
        value = [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(text for one in value for text in secrets_in(one)))
    return ()
