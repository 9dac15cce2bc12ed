"""IP addresses as people write them: 2001:db8::1 and 2001:DB8:0::1 are one."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address


@lru_cache(maxsize=1 << 16)
def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """None for what is no address, such as 300.1.1.1 or a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def same_address(one: str, other: str) -> bool:
    known = parsed(one)
    return one == other or (known is not None and known == parsed(other))


def is_loopback(text: str) -> bool:
    known = parsed(text)
    return known is not None and known.is_loopback
