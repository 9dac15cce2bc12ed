"""Addresses that were given for this host: it must have them, or others would look for it where somebody else is."""

from __future__ import annotations

from collections.abc import Sequence

from quartermaster.host.commands import Commands
from quartermaster.host.facts import addresses, can_listen_on
from quartermaster.support.addresses import parsed, same_address
from quartermaster.support.errors import UsageError


async def require_own(given: Sequence[str], commands: Commands) -> None:
    """UsageError for one that is no address, or none of this host's."""
    for text in given:
        known = parsed(text)
        if known is None or known.is_unspecified or known.is_multicast:
            raise UsageError(
                f'cannot use "{text}": it is not the IP address of a host', hint="for example --address 10.0.0.7"
            )
    if not given:
        return
    there = await addresses(commands)
    for text in given:
        if not any(same_address(text, one) for one in there) and not can_listen_on(text):
            has = f"it has {', '.join(there)}" if there else "it has none that others could reach"
            raise UsageError(
                f"cannot use {text}: this host does not have that address; {has}",
                hint="name one of them, or leave out --address",
            )
