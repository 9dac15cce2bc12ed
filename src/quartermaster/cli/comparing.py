"""The difference between what is there and what an apply would make of it, as a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from quartermaster.cli import failures
from quartermaster.cli.given import Given, place
from quartermaster.cli.output import Document, as_document, yaml_text
from quartermaster.cli.session import Session
from quartermaster.resources import Object, Secret
from quartermaster.support.errors import ApplyConflictError, NotFoundError

if TYPE_CHECKING:
    from quartermaster.resources.manifests import Manifest
    from quartermaster.stores import Store

# Set by the store whatever is applied.
_NOISE = ("resourceVersion", "generation")
_NOISE_OF_NEW = ("uid", "creationTimestamp")


async def compare(session: Session, manifests: Sequence[Manifest], *, manager: str, force: bool) -> int:
    """Print the differences; 1 if there are any, 2 if some could not be told."""
    different = failed = False
    async with session.store(reads_only=True) as store:
        for given in place(manifests, session.namespace(store), given_namespace=session.given_namespace):
            before = await _read(store, given)
            try:
                after = await store.apply(given.document, manager=manager, force=force, dry_run=True)
            except ApplyConflictError as error:
                failures.say(f"{given.manifest.place}: {failures.sentence(error)}")
                failed = True
                continue
            lines = list(_difference(given, before, after))
            different = different or bool(lines)
            click.echo("".join(lines), nl=False)
    return failures.WRONG_USE if failed else int(different)


async def _read(store: Store, given: Given) -> Object | None:
    try:
        return await store.get(given.kind, given.name, given.namespace)
    except NotFoundError:
        return None


def _difference(given: Given, before: Object | None, after: Object) -> Iterator[str]:
    old = _shown(before, new=False) if before is not None else {}
    new = _shown(after, new=before is None)
    if given.kind is Secret:
        _mask(old, new)
    where = f"{given.namespace}/{given.title}" if given.namespace else given.title
    lines = difflib.unified_diff(
        yaml_text(old).splitlines(keepends=True) if old else [],
        yaml_text(new).splitlines(keepends=True),
        f"live/{where}" if old else "/dev/null",
        f"applied/{where}",
    )
    for line in lines:
        yield _coloured(line)


def _shown(obj: Object, *, new: bool) -> Document:
    document = as_document(obj)
    for name in (*_NOISE, *(_NOISE_OF_NEW if new else ())):
        document["metadata"].pop(name, None)
    return document


def _mask(old: Document, new: Document) -> None:
    """That a secret changes is shown, what it is never."""
    before, after = old.get("data", {}), new.get("data", {})
    for name in {**before, **after}:
        same = before.get(name) == after.get(name)
        if name in before:
            before[name] = "***" if same else "*** (before)"
        if name in after:
            after[name] = "***" if same else "*** (after)"


def _coloured(line: str) -> str:
    if line.startswith(("---", "+++")):
        return click.style(line, bold=True)
    if line.startswith("@@"):
        return click.style(line, fg="cyan")
    if line.startswith("+"):
        return click.style(line, fg="green")
    return click.style(line, fg="red") if line.startswith("-") else line
