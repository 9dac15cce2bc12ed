"""IP addresses as people write them."""

from __future__ import annotations

import pytest

from quartermaster.support.addresses import is_loopback, parsed, same_address


@pytest.mark.parametrize("text", ["300.1.1.1", "10.0.0", "h1", "", "10.0.0.1/24"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert parsed(text) is None
    assert not is_loopback(text)


def test_one_address_may_be_written_in_two_ways() -> None:
    assert same_address("2001:db8::1", "2001:DB8:0::1")
    assert same_address("h1", "h1")
    assert not same_address("10.0.0.1", "10.0.0.2")
    assert not same_address("h1", "h2")


def test_every_host_has_all_loopback_addresses() -> None:
    assert is_loopback("127.30.1.2")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")
