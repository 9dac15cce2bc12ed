"""Quantities are read, compared and written as Kubernetes does."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartermaster.resources.declare import QUANTITY_PATTERN
from quartermaster.resources.quantity import Amount, check_quantity, of_bytes
from quartermaster.support.errors import InvalidError

SUFFIXES = st.sampled_from(
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "e3", "E-3", "e1"]
)
QUANTITIES = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**6),
    st.sampled_from(["", ".", ".5", ".125", ".0001"]),
    SUFFIXES,
)


@pytest.mark.parametrize(
    ("text", "canonical", "value"),
    [
        # each line was printed by Kubernetes' own library
        ("0", "0", "0"),
        ("0Gi", "0", "0"),
        ("1.5", "1500m", "1.5"),
        ("1.5Gi", "1536Mi", "1610612736"),
        ("1024", "1024", "1024"),
        ("1024Mi", "1Gi", "1073741824"),
        ("1025Ki", "1025Ki", "1049600"),
        ("0.5Ki", "512", "512"),
        ("1.1Ki", "1126400m", "1126.4"),
        ("1000m", "1", "1"),
        ("1000k", "1M", "1000000"),
        ("1e3", "1e3", "1000"),
        ("1.5e3", "1500", "1500"),
        ("12e-3", "12e-3", "0.012"),
        ("1E", "1E", "1000000000000000000"),
        ("0.1n", "1n", "1e-9"),
        ("+5", "5", "5"),
        ("-1Gi", "-1Gi", "-1073741824"),
        ("9Ei", "9223372036854775807", "9223372036854775807"),
        ("156495.962u", "156495962n", "0.156495962"),
        ("2668036.n", "2668036n", "0.002668036"),
    ],
)
def test_the_canonical_form_is_that_of_kubernetes(text: str, canonical: str, value: str) -> None:
    assert str(Amount.of(text)) == canonical
    assert Amount.of(text).value == Decimal(value)


@pytest.mark.parametrize("text", ["", ".", "Gi", "5GB", "5gi", " 5", "5 ", "1e", "1e3.5", "0x10", "1_0", "1,5", "five"])
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidError, match="cannot read the quantity") as refused:
        Amount.of(text)
    assert refused.value.hint == "for example 10Gi"
    assert check_quantity(text) == "must be a number with a unit"


@pytest.mark.parametrize("text", ["1e999999999", "9" * 5000, "0." + "1" * 5000 + "Gi"])
def test_what_is_beyond_measure_is_refused_at_once(text: str) -> None:
    assert check_quantity(text) == "must be a number with a unit"


@pytest.mark.slow
@given(st.from_regex(QUANTITY_PATTERN.replace("$", r"\Z")))
def test_whatever_the_schema_lets_in_can_be_read(text: str) -> None:
    assert Amount.of(text) >= Amount.of(text)


def test_numbers_are_quantities() -> None:
    assert Amount.of(5) == Amount.of("5")
    assert Amount.of(0.5) == Amount.of("500m")
    assert Amount.of(1e-07) == Amount.of("100n")


def test_a_fraction_of_a_byte_is_a_byte() -> None:
    assert Amount.of("1.1Ki").bytes == 1127


def test_bytes_are_written_with_the_largest_unit() -> None:
    assert of_bytes(1073741824) == "1Gi"
    assert of_bytes(1000) == "1k"
    assert of_bytes(1025) == "1025"


@pytest.mark.slow
@given(QUANTITIES)
def test_the_canonical_form_has_the_same_value_and_is_final(text: str) -> None:
    amount = Amount.of(text)
    canonical = Amount.of(str(amount))
    assert canonical == amount
    assert canonical.family != amount.family or str(canonical) == str(amount)
    assert str(Amount.of(str(canonical))) == str(canonical)
    assert "." not in str(amount)


def test_bytes_that_no_binary_unit_holds_are_written_without_one_and_are_decimal_from_then_on() -> None:
    """So it is on an API server: a plain number does not say that it was binary."""
    assert str(Amount.of("28953.125Ki")) == "29648000"
    assert str(Amount.of("29648000")) == "29648k"


@given(QUANTITIES, QUANTITIES)
def test_amounts_compare_and_add_by_value(left: str, right: str) -> None:
    a, b = Amount.of(left), Amount.of(right)
    assert (a < b, a <= b, a > b, a >= b) == (
        a.value < b.value,
        a.value <= b.value,
        b.value < a.value,
        b.value <= a.value,
    )
    assert (a == b) == (hash(a) == hash(b) and a.value == b.value)
    assert (a + b) - b == a
