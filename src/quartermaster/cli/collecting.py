"""After a delete on our own stores: doing the collector's work where nobody else does.

It goes through every kind, as nothing says what a deleted object owned; so it runs once for all that a command deletes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from quartermaster.cli.leading import somebody_leads
from quartermaster.support.errors import QuartermasterError
from quartermaster.support.redaction import redact

if TYPE_CHECKING:
    from quartermaster.stores import Store

# Nobody who deletes one object waits longer than this for old Events to go; what is left goes with the next delete.
_EXPIRY_S = 3.0
_EXPIRIES_PER_S = 1000.0


async def clean_up(store: Store) -> None:
    """On our own stores dependants and old Events are the leader's work; where nobody leads it is ours.

    What was deleted is deleted, whatever becomes of this.
    """
    if not store.fences:
        return
    from quartermaster.engine.collector import collect_once

    try:
        if await somebody_leads(store, None):
            return
        collected = await collect_once(store)
        if collected.deleted:
            click.echo(f"{collected.deleted} dependent object{'s' if collected.deleted > 1 else ''} deleted")
        await _expire(store)
    except QuartermasterError as error:
        click.echo(f"note: deleted; dependants were not collected: {redact(str(error))}", err=True)
        click.echo("the next delete collects them, or whoever leads next", err=True)


async def _expire(store: Store) -> None:
    from quartermaster.engine.expiry import TTL_S, expire_events

    stopping = asyncio.Event()
    timer = asyncio.get_running_loop().call_later(_EXPIRY_S, stopping.set)
    try:
        await expire_events(store, TTL_S, _EXPIRIES_PER_S, stopping)
    finally:
        timer.cancel()
