"""Applying documents one by one, and telling truthfully what was written when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from quartermaster.cli import failures
from quartermaster.cli.given import Given, place
from quartermaster.cli.progress import Progress
from quartermaster.cli.session import Session
from quartermaster.resources import Object, to_document
from quartermaster.support.errors import (
    ConflictError,
    DamagedError,
    InvalidError,
    NotFoundError,
    QuartermasterError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
    UnreadableError,
    UsageError,
)

if TYPE_CHECKING:
    from quartermaster.resources.manifests import Manifest
    from quartermaster.stores import Store

# After these the next object would fare no better.
_HOPELESS = (UnavailableError, DamagedError, UnauthorizedError)
# After these nothing was written; after all others something may have been.
_REFUSALS = (InvalidError, UsageError, ConflictError, NotFoundError, RefusedError)
_SHOWN_NAMES = 20


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    force: bool = False
    manager: str = ""


class _Ledger:
    """What became of each object."""

    def __init__(self, given: Sequence[Given]) -> None:
        self.total = len(given)
        self.written: list[str] = []
        self.refused: list[str] = []
        self.uncertain: list[str] = []
        self.waiting = [one.title for one in given]

    def settle(self, outcome: list[str]) -> None:
        outcome.append(self.waiting.pop(0))

    @property
    def complete(self) -> bool:
        return len(self.written) == self.total


async def apply(session: Session, manifests: Sequence[Manifest], plan: Plan) -> int:
    async with session.store(reads_only=plan.dry_run) as store:
        given = place(manifests, session.namespace(store), given_namespace=session.given_namespace)
        session.name_store(store)
        ledger = _Ledger(given)
        progress = Progress("applied", len(given))
        try:
            for one in given:
                try:
                    verdict, after = await _apply_one(store, one, plan)
                except QuartermasterError as error:
                    progress.clear()
                    failures.say(f"{one.manifest.place}: {failures.sentence(error)}")
                    ledger.settle(ledger.refused if isinstance(error, _REFUSALS) else ledger.uncertain)
                    if isinstance(error, _HOPELESS):
                        break
                else:
                    ledger.settle(ledger.written)
                    progress.step()
                    click.echo(f"{one.title} {verdict}{' (dry run)' if plan.dry_run else ''}")
                    if after.metadata.deletion_timestamp:
                        click.echo(f"note: {one.title} is being deleted; apply it again when it is gone", err=True)
        except asyncio.CancelledError:
            ledger.settle(ledger.uncertain)
            raise
        finally:
            progress.clear()
            if not plan.dry_run and not ledger.complete and ledger.total > 1:
                _account(ledger)
    return 0 if ledger.complete else failures.FAILED


async def _apply_one(store: Store, given: Given, plan: Plan) -> tuple[str, Object]:
    try:
        before = await _read(store, given)
    except UnreadableError:
        # An apply is how it is mended.
        after = await store.apply(given.document, manager=plan.manager, force=plan.force, dry_run=plan.dry_run)
        return "configured", after
    after = await store.apply(given.document, manager=plan.manager, force=plan.force, dry_run=plan.dry_run)
    if before is None:
        return "created", after
    return "unchanged" if _comparable(before) == _comparable(after) else "configured", after


async def _read(store: Store, given: Given) -> Object | None:
    try:
        return await store.get(given.kind, given.name, given.namespace)
    except NotFoundError:
        return None


def _comparable(obj: Object) -> dict[str, Any]:
    """Without what a store changes by itself."""
    document = to_document(obj)
    metadata = document["metadata"]
    metadata.pop("resourceVersion", None)
    for entry in metadata.get("managedFields", ()):
        entry.pop("time", None)
    return document


def _account(ledger: _Ledger) -> None:
    not_written = ledger.refused + ledger.waiting
    lines = [f"{len(ledger.written)} of {ledger.total} objects were written"]
    lines += [f"  written: {_names(ledger.written)}"] if ledger.written else []
    lines += [f"  perhaps written: {_names(ledger.uncertain)}"] if ledger.uncertain else []
    lines += [f"  not written: {_names(not_written)}"] if not_written else []
    again = "mend that, and run" if ledger.refused else "run"
    click.echo("\n".join([*lines, f"{again} the same command again to complete it"]), err=True)


def _names(titles: Sequence[str]) -> str:
    rest = len(titles) - _SHOWN_NAMES
    return ", ".join(titles[:_SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")
