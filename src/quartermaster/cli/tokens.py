"""What `qm token` does: it needs the rights of a leader, which hosts that carry a member of etcd have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from quartermaster.backends.etcd.member import endpoint
from quartermaster.backends.etcd.memory import MEMORY_NAME, from_object
from quartermaster.cli.output import format_document, parse_output
from quartermaster.cli.session import Session
from quartermaster.cli.tables import NONE, Writer
from quartermaster.host.places import state_directory
from quartermaster.orchestration.joining.access import read_access
from quartermaster.orchestration.joining.authority import load_authority
from quartermaster.orchestration.joining.tokens import (
    TokenRecord,
    create_token,
    encode,
    list_tokens,
    moment,
    revoke_token,
)
from quartermaster.orchestration.joining.wire import PORT
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.support import clock
from quartermaster.support.errors import ForbiddenError, NotFoundError, UsageError

if TYPE_CHECKING:
    from quartermaster.stores import Store


@asynccontextmanager
async def as_leader(session: Session) -> AsyncIterator[tuple[Store, str]]:
    """The store with a leader's rights, and the namespace: this host's own where nothing else was asked for."""
    access = read_access(state_directory())
    if access is not None and access.leader_url and not session.given_store and not os.environ.get("QM_STORE"):
        session.override(store_url=access.leader_url, namespace=session.given_namespace or access.namespace)
    try:
        async with session.store() as store:
            yield store, session.namespace(store)
    except ForbiddenError as error:
        raise ForbiddenError(
            f"cannot do that with the rights of this host: {error.message}",
            hint="run it on a host that carries a member of etcd: there a leader's rights are",
        ) from error


async def create_and_show(session: Session, *, lifetime_s: float, host: str) -> None:
    if lifetime_s <= 0:
        raise UsageError("cannot make a token that has expired already", hint="for example --expires 15m")
    async with as_leader(session) as (store, namespace):
        session.name_store(store)
        authority = await load_authority(store, namespace)
        memory = from_object(await store.get(ConfigMap, MEMORY_NAME, namespace))
        addresses = tuple(endpoint(seat.config.address, PORT) for seat in memory.seats if seat.phase == "serving")
        token = await create_token(
            store,
            namespace,
            fingerprint=authority.fingerprint,
            addresses=addresses,
            lifetime_s=lifetime_s,
            host=host,
        )
    click.echo(encode(token))
    click.echo(f"on the new host, within {_duration(lifetime_s)}: qm join TOKEN", err=True)


async def show_tokens(session: Session, output: str) -> None:
    form = parse_output(output)
    if form.form not in ("", "wide", "yaml", "json"):
        raise UsageError(f'cannot print tokens as "{output}"', hint="-o takes wide, yaml or json")
    async with as_leader(session) as (store, namespace):
        records = await list_tokens(store, namespace)
    rows = [_row(record, clock.wall_time()) for record in records]
    if not form.is_table:
        click.echo(format_document(form, {"tokens": rows}), nl=False)
        return
    if not rows:
        click.echo("There are no tokens; `qm token create` makes one.", err=True)
        return
    headers = ("ID", "STATE", "EXPIRES", "HOST")
    table = [[str(row[header.lower()]) or NONE for header in headers] for row in rows]
    click.echo(Writer(headers).format(table), nl=False)


async def revoke_all(session: Session, identities: tuple[str, ...]) -> None:
    async with as_leader(session) as (store, namespace):
        session.name_store(store)
        for identity in identities:
            try:
                await revoke_token(store, namespace, identity)
            except NotFoundError as error:
                raise NotFoundError(
                    f'cannot revoke the token "{identity}": there is none of that id', hint="`qm token list` shows them"
                ) from error
            click.echo(f"token {identity} revoked")


def _row(record: TokenRecord, now: float) -> dict[str, Any]:
    state = f"used by {record.used_by}" if record.used_by else "expired" if now >= record.expires else "unused"
    return {"id": record.id, "state": state, "expires": moment(record.expires), "host": record.host}


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes > 1 else f"{seconds:.0f} seconds"
