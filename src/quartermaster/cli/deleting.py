"""Deleting, and waiting until it is done."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli import failures
from quartermaster.cli.arguments import Targets, full_name, parse_targets
from quartermaster.cli.asking import confirmed
from quartermaster.cli.collecting import clean_up
from quartermaster.cli.deleting_in_use import let_go_in_use
from quartermaster.cli.finding import Query, find_groups
from quartermaster.cli.given import Given, place, read_given
from quartermaster.cli.holders import why_held
from quartermaster.cli.progress import Progress
from quartermaster.cli.session import Session
from quartermaster.resources import Object, kind_of
from quartermaster.resources.orchestration import Host
from quartermaster.support.deadlines import within
from quartermaster.support.errors import (
    DeadlineError,
    ExpiredError,
    NotFoundError,
    QuartermasterError,
    UnreadableError,
    UsageError,
)

if TYPE_CHECKING:
    from quartermaster.stores import Store
    from quartermaster.stores.base import Propagation

_PROPAGATION: dict[str, Propagation] = {
    "background": "Background",
    "foreground": "Foreground",
    "orphan": "Orphan",
}
# An object that is held is worth a word before the whole time is over.
_SILENT_S = 1.0
_SAY_AGAIN_S = 3.0
_LOOK_AGAIN_S = 0.2


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    words: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    labels: str = ""
    fields: str = ""
    everything: bool = False
    all_namespaces: bool = False
    yes: bool = False
    cascade: str = "background"
    wait: bool = True
    timeout_s: float = 60.0
    ignore_not_found: bool = False
    force: bool = False
    dry_run: bool = False


class _Chosen(msgspec.Struct, frozen=True):
    """What is to go: known by its name alone where it cannot be read."""

    kind: type[Object]
    name: str
    namespace: str
    uid: str = ""

    @classmethod
    def of(cls, obj: Object) -> _Chosen:
        return cls(type(obj), obj.metadata.name, obj.metadata.namespace, obj.metadata.uid)

    @property
    def title(self) -> str:
        """As kubectl says it: storagenode.coreos.com "a"."""
        kind, _, name = full_name(self.kind, self.name).partition("/")
        return f'{kind} "{name}"'


async def delete(session: Session, plan: Plan) -> int:
    targets = _targets(plan)
    manifests = read_given(plan.files) if plan.files else []
    async with session.store(reads_only=plan.dry_run) as store:
        namespace = session.namespace(store)
        if targets is None:
            given = place(manifests, namespace, given_namespace=session.given_namespace)
            chosen, missing = await _choose_given(store, list(reversed(given)))
        else:
            query = Query(None if plan.all_namespaces else namespace, plan.labels, plan.fields)
            chosen, missing = await _choose_named(store, targets, query)
        session.name_store(store)
        if plan.everything and chosen and not plan.dry_run and not _confirmed(chosen, plan):
            click.echo("nothing was deleted", err=True)
            return failures.FAILED
        failed = await _delete_all(store, chosen, plan)
    for sentence in [] if plan.ignore_not_found else missing:
        failures.say(sentence)
        failed = True
    if not chosen and not missing:
        click.echo("No resources found", err=True)
    return failures.FAILED if failed else 0


async def _choose_given(store: Store, given: Sequence[Given]) -> tuple[list[_Chosen], list[str]]:
    """What is there of the files' objects, and a sentence for each that is not."""
    chosen, missing = [], []
    for one in given:
        try:
            chosen.append(_Chosen.of(await store.get(one.kind, one.name, one.namespace)))
        except NotFoundError as error:
            missing.append(str(error))
        except UnreadableError:
            chosen.append(_Chosen(one.kind, one.name, one.namespace))
    return chosen, missing


async def _choose_named(store: Store, targets: Targets, query: Query) -> tuple[list[_Chosen], list[str]]:
    groups = await find_groups(store, targets, query, also_unreadable=True)
    chosen = []
    for group in groups:
        chosen += [_Chosen.of(obj) for obj in group.objects]
        chosen += [_Chosen(group.kind, name, query.namespace_for(group.kind) or "") for name in group.unreadable]
    return chosen, [sentence for group in groups for sentence in group.missing]


def _targets(plan: Plan) -> Targets | None:
    """What is named on the command line, or None when files say it. Refuses what is ambiguous or far too much."""
    if plan.files:
        if plan.words or plan.labels or plan.fields or plan.everything or plan.all_namespaces:
            raise UsageError("cannot delete by file and by name at once", hint="leave out one of them")
        return None
    targets = parse_targets(plan.words)
    selects = bool(plan.labels or plan.fields)
    if plan.everything and (targets.named or selects):
        raise UsageError("cannot use --all with names or a selector", hint="leave out one of them")
    if not targets.named and not selects and not plan.everything:
        raise UsageError("cannot tell which objects to delete", hint="name them, select them with -l, or say --all")
    return targets


def _confirmed(chosen: Sequence[_Chosen], plan: Plan) -> bool:
    if plan.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"cannot delete {_count(len(chosen))} without asking: there is no terminal", hint="say --yes")
    return confirmed(f"Delete {_count(len(chosen))}?")


def _count(number: int) -> str:
    return f"{number} object{'' if number == 1 else 's'}"


async def _delete_all(store: Store, chosen: Sequence[_Chosen], plan: Plan) -> bool:
    """Whether something went wrong."""
    failed = False
    done = 0
    held = []
    progress = Progress("deleted", len(chosen))
    for position, one in enumerate(chosen):
        try:
            after = await _delete_one(store, one, plan)
        except asyncio.CancelledError:
            progress.clear()
            if not plan.dry_run:
                _account(done, len(chosen) - position)
            raise
        except QuartermasterError as error:
            progress.clear()
            failures.say(failures.sentence(error))
            failed = True
            continue
        progress.step()
        done += 1
        if after is not None and after.metadata.deletion_timestamp and after.metadata.finalizers and not plan.dry_run:
            held.append((one, after))  # it is there still, perhaps for long
        else:
            click.echo(f"{one.title} deleted{' (dry run)' if plan.dry_run else ''}")
    progress.clear()
    if plan.dry_run or not done:
        return failed
    await clean_up(store)
    return not await _see_the_end(store, held, plan) or failed


async def _see_the_end(store: Store, held: Sequence[tuple[_Chosen, Object]], plan: Plan) -> bool:
    """Of what others have to let go first: it is said to be deleted when it is."""
    ended = True
    for at, (one, obj) in enumerate(held):
        try:
            if plan.wait:
                await _wait_until_gone(store, one, obj, plan.timeout_s)
            click.echo(f"{one.title} {'deleted' if plan.wait else 'is being deleted'}")
        except asyncio.CancelledError:
            left = ", ".join(rest.title for rest, _ in held[at:])
            click.echo(f"interrupted: waited for the end of {left}; what was asked for stands", err=True)
            raise
        except QuartermasterError as error:
            failures.say(str(error))
            ended = False
    return ended


def _account(done: int, rest: int) -> None:
    remain = "remains" if rest == 1 else "remain"
    text = f"interrupted: {_count(done)} deleted, {_count(rest)} {remain}; the next of them is perhaps deleted"
    click.echo(text, err=True)


async def _delete_one(store: Store, one: _Chosen, plan: Plan) -> Object | None:
    note = await _look_at_host(store, one, plan) if one.kind is Host else ""
    if plan.force and not plan.dry_run:
        await let_go_in_use(store, one.kind, one.name, one.namespace, one.uid)
    propagation = _PROPAGATION[plan.cascade]
    try:
        after = await store.delete(
            one.kind, one.name, one.namespace, uid=one.uid, propagation=propagation, dry_run=plan.dry_run
        )
    except NotFoundError:
        return None  # gone since it was read: by its owner's end, perhaps
    if note:
        click.echo(f"note: {note}", err=True)
    return after


async def _look_at_host(store: Store, one: _Chosen, plan: Plan) -> str:
    """What becomes of a Host that is deleted. ConflictError where it is not to be."""
    from quartermaster.cli.hearing import refuse_needed_host, will_return

    if not plan.force:
        await refuse_needed_host(store, one.name, one.namespace)
    return "" if plan.dry_run else await will_return(store, one.name, one.namespace)


async def _wait_until_gone(store: Store, one: _Chosen, obj: Object, timeout_s: float) -> None:
    """What it waits for is said from the second second on, and again when that changes."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    latest, said, pause_s = [obj], "", _SILENT_S
    while True:
        try:
            async with within(min(pause_s, max(0.0, deadline - loop.time()))):
                await _until_gone(store, one, latest)
                return
        except TimeoutError:
            pass
        why = await why_held(store, latest[0])
        if loop.time() >= deadline:
            raise DeadlineError(
                f"cannot see the end of {one.title} within {timeout_s:g} s: it is held by {why}",
                hint="it goes when whoever put that there takes it away; --no-wait does not wait for it",
            )
        if why != said:
            click.echo(f"waiting for {one.title}: held by {why}", err=True)
        said, pause_s = why, _SAY_AGAIN_S


async def _until_gone(store: Store, one: _Chosen, latest: list[Object]) -> None:
    """Return when the object is no longer there; `latest` keeps its last state."""
    uid = latest[0].metadata.uid
    namespace = one.namespace if kind_of(one.kind).namespaced else None
    fields = f"metadata.name={one.name}"
    while not one.uid:
        # Neither lists nor watches show what cannot be read.
        try:
            await store.get(one.kind, one.name, one.namespace)
        except NotFoundError:
            return
        except UnreadableError:
            await asyncio.sleep(_LOOK_AGAIN_S)
        else:
            break
    while True:
        page = await store.list(one.kind, namespace, fields=fields)
        if not any(obj.metadata.uid == uid for obj in page.items):
            return
        latest[0] = page.items[0]
        try:
            async with aclosing(store.watch(one.kind, namespace, since=page.revision, fields=fields)) as events:
                async for event in events:
                    if event.object is None or event.object.metadata.uid != uid:
                        continue
                    if event.type == "DELETED":
                        return
                    latest[0] = event.object
        except ExpiredError:
            continue
