"""Kubernetes quantities: "12Gi", "500m", "1e3", 7.

An `Amount` is exact (a Decimal) and remembers in which family of suffixes it was written, as the API server does,
so that its text comes out the same: binary (Ki), decimal (k, m) or with an exponent.
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal, localcontext
from functools import lru_cache
from typing import Literal, Self

import msgspec

from quartermaster.resources.declare import QUANTITY_PATTERN
from quartermaster.support.errors import InvalidError

Family = Literal["binary", "decimal", "exponent"]

_TEXT = re.compile(QUANTITY_PATTERN.strip("^$"))
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_LEAST = Decimal("1e-9")
_GREATEST = Decimal(2**63 - 1)
# Nothing that a quantity can hold is rounded by Python's own default of 28 digits.
_EXACT = Context(prec=300, Emax=999_999, Emin=-999_999)


class Amount(msgspec.Struct, frozen=True, eq=False):
    """A quantity that was read. Amounts compare by value: 1Gi == 1024Mi."""

    value: Decimal
    family: Family = "decimal"

    @classmethod
    def of(cls, quantity: str | int | float) -> Self:
        """Read one; InvalidError says what is wrong with it."""
        value, family = _read(quantity if isinstance(quantity, str) else _number_text(quantity))
        return cls(value, family)

    @property
    def bytes(self) -> int:
        """As a whole number, a fraction rounded away from zero: what is asked for must fit."""
        return int(self.value.to_integral_value(ROUND_UP))

    def __str__(self) -> str:
        """As the API server would write it: no fraction, the largest suffix that loses nothing."""
        if self.family == "binary" and abs(self.value) >= 1024 and self.value % 1 == 0:
            return _binary_text(int(self.value))
        return _exponent_text(self.value) if self.family == "exponent" else _decimal_text(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Amount) else NotImplemented

    def __lt__(self, other: Amount) -> bool:
        return self.value < other.value

    def __le__(self, other: Amount) -> bool:
        return self.value <= other.value

    def __gt__(self, other: Amount) -> bool:
        return self.value > other.value

    def __ge__(self, other: Amount) -> bool:
        return self.value >= other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __add__(self, other: Amount) -> Amount:
        with localcontext(_EXACT):
            return Amount(self.value + other.value, self.family)

    def __sub__(self, other: Amount) -> Amount:
        with localcontext(_EXACT):
            return Amount(self.value - other.value, self.family)


def of_bytes(count: int) -> str:
    """The text for a number of bytes: 1073741824 → "1Gi"."""
    return str(Amount(Decimal(count), "binary"))


def check_quantity(quantity: str | int | float) -> str:
    """ "" if it can be read, else what is wrong with it."""
    try:
        Amount.of(quantity)
    except InvalidError as error:
        return error.message.partition(": ")[2]
    return ""


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[Decimal, Family]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InvalidError(f'cannot read the quantity "{text}": must be a number with a unit', hint="for example 10Gi")
    sign, digits, binary, decimal, exponent = match.groups()
    family: Family = "binary" if binary else "exponent" if exponent is not None else "decimal"
    with localcontext(_EXACT):
        value = Decimal(digits if digits[-1] != "." else digits[:-1])
        if binary:
            value *= 2 ** _BINARY[binary]
        else:
            value = value.scaleb(int(exponent) if exponent is not None else _DECIMAL[decimal or ""])
        value = _round_up(value)
        if binary:
            value = min(value, _GREATEST)
    return (-value if sign == "-" else value), family


def _round_up(value: Decimal) -> Decimal:
    """To whole nano-units, away from zero; smaller than that does not exist."""
    return value.quantize(_LEAST, ROUND_UP) if -value.as_tuple().exponent > 9 else value  # type: ignore[operator]


def _number_text(number: int | float) -> str:
    if isinstance(number, int):
        return str(number)
    text = format(Decimal(repr(number)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _binary_text(value: int) -> str:
    for suffix, exponent in reversed(_BINARY.items()):
        if value % 2**exponent == 0:
            return f"{value >> exponent}{suffix}"
    return str(value)


def _mantissa(value: Decimal) -> tuple[int, int]:
    """(m, e) with value = m * 10^e, e a multiple of 3 and as large as keeps m whole."""
    if not value:
        return 0, 0
    with localcontext(_EXACT):
        sign, digits, exponent = value.normalize().as_tuple()
    whole = int("".join(map(str, digits)))
    assert isinstance(exponent, int)  # noqa: S101 - a quantity is finite
    shift = exponent % 3
    return (-1 if sign else 1) * whole * 10**shift, exponent - shift


def _decimal_text(value: Decimal) -> str:
    mantissa, exponent = _mantissa(value)
    if exponent > 18:
        mantissa, exponent = mantissa * 10 ** (exponent - 18), 18
    return f"{mantissa}{_BY_EXPONENT[exponent]}"


def _exponent_text(value: Decimal) -> str:
    mantissa, exponent = _mantissa(value)
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)
