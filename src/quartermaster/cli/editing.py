"""The loop of `qm edit`: read, edit, check, write; and no text that a person typed is ever lost."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from quartermaster.cli.arguments import full_name, parse_targets
from quartermaster.cli.output import Document, as_document, yaml_text
from quartermaster.cli.session import Session
from quartermaster.resources import Object, from_document, kind_of
from quartermaster.resources.admission import fill_defaults, validate
from quartermaster.resources.manifests import parse_manifests
from quartermaster.support.errors import ConflictError, InvalidError, Problem, QuartermasterError, UsageError

_INTRODUCTION = """\
# Edit the object, save and leave the editor. Lines that begin with a hash are ignored;
# an empty file, or one without changes, cancels.
"""
# Not that of `qm apply`: the next apply must notice that somebody edited what its file says.
_MANAGER = "qm-edit"
# What a person may not change; the object is found again by them.
_IDENTITY = ("name", "namespace", "uid")


def edit(session: Session, words: Sequence[str]) -> None:
    targets = parse_targets(words)
    if len(targets.items) != 1 or len(targets.items[0].names) != 1:
        raise UsageError("cannot edit several objects at once", hint="name one: TYPE NAME")
    if not _chosen_editor(os.environ)[1] and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "cannot edit: there is no terminal, and no editor is chosen", hint="set EDITOR, or use `qm apply -f FILE`"
        )
    kind, name = targets.items[0].kind, targets.items[0].names[0]
    original = session.run(lambda: _read(session, kind, name))
    shown = as_document(original)
    text = yaml_text(shown)
    with tempfile.NamedTemporaryFile("w", prefix=f"qm-edit-{name}-", suffix=".yaml", delete=False) as file:
        file.write(_INTRODUCTION + text)
    path = Path(file.name)
    try:
        changed = _edit_until_right(path, shown, text)
        if changed is None:
            path.unlink()
            click.echo("Edit cancelled, no changes made.")
            return
        after = session.run(lambda: _write(session, original, changed))
    except QuartermasterError as error:
        if path.read_text() == _INTRODUCTION + text:
            path.unlink()  # nobody typed anything
            raise
        meanwhile = "somebody else changed it meanwhile; " if isinstance(error, ConflictError) else ""
        click.echo(f"{meanwhile}your text is kept in {path}", err=True)
        raise
    path.unlink()
    click.echo(f"{full_name(kind, name)} {_verdict(original, after)}")


def _verdict(before: Object, after: Object) -> str:
    if before.metadata.deletion_timestamp and before.metadata.finalizers and not after.metadata.finalizers:
        return "edited; it is deleted now"
    same = after.metadata.resource_version == before.metadata.resource_version
    return "unchanged" if same else "edited"


async def _read(session: Session, kind: type[Object], name: str) -> Object:
    async with session.store(reads_only=True) as store:
        namespace = session.namespace(store) if kind_of(kind).namespaced else ""
        return await store.get(kind, name, namespace)


async def _write(session: Session, original: Object, changed: Document) -> Object:
    """The version that was read goes with it, so that nobody's change in between is overwritten."""
    metadata = changed["metadata"]
    metadata["resourceVersion"] = original.metadata.resource_version
    metadata.pop("managedFields", None)
    async with session.store(manager=_MANAGER) as store:
        session.name_store(store)
        obj = from_document(type(original), changed)
        after: Object = await store.update(obj)
        return after


def _edit_until_right(path: Path, shown: Document, text: str) -> Document | None:
    """The changed document, or None when there is nothing to change."""
    refused = ""
    while True:
        _run_editor(path)
        edited = path.read_text()
        body = _without_comments(edited)
        if not body.strip() or body == text:
            return None
        if body == refused:
            raise InvalidError(f"cannot accept {shown['kind']} {shown['metadata']['name']}", _problems(shown, body)[1])
        document, problems = _problems(shown, body)
        if not problems:
            return None if document == shown else document
        refused = body
        path.write_text(_with_problems(body, problems))


def _problems(shown: Document, body: str) -> tuple[Any, list[Problem]]:
    manifests, problems = parse_manifests(body, "")
    if problems or len(manifests) != 1:
        return None, problems or [Problem("", f"there are {len(manifests)} objects", "leave the one that was there")]
    manifest = manifests[0]
    if manifest.problems:
        return None, list(manifest.problems)
    document = manifest.document
    found = list(_changed_identity(shown, document)) if isinstance(document, dict) else []
    if not found:
        # Fields that a newer version wrote are there already, and stay.
        found = validate(fill_defaults(document) if isinstance(document, dict) else document, unknown_ok=False)
        found = [problem for problem in found if not _was_there(shown, problem)]
    return document, [Problem(p.path, p.message, p.fix, manifest.lines.line_of(p.path)) for p in found]


def _changed_identity(shown: Document, document: Document) -> list[Problem]:
    found = [
        Problem(name, f"cannot change from {shown[name]} to {document.get(name)}", "edit changes one object in place")
        for name in ("apiVersion", "kind")
        if document.get(name) != shown[name]
    ]
    before, after = shown["metadata"], document.get("metadata")
    after = after if isinstance(after, dict) else {}
    return found + [
        Problem(f"metadata.{name}", f"cannot change from {before.get(name)} to {after.get(name)}")
        for name in _IDENTITY
        if before.get(name) != after.get(name)
    ]


def _was_there(shown: Document, problem: Problem) -> bool:
    """Whether the object as it was read has the same mistake: it is not this edit's."""
    return any(p.path == problem.path and p.message == problem.message for p in validate(fill_defaults(shown)))


def _run_editor(path: Path) -> None:
    editor = editor_command(os.environ)
    try:
        result = subprocess.run([*editor, str(path)], check=False)
    except OSError as error:
        raise UsageError(
            f"cannot start the editor {editor[0]}: {error.strerror}", hint="set EDITOR to one that is installed"
        ) from error
    if result.returncode:
        raise UsageError(f"cannot edit: {editor[0]} ended with code {result.returncode}")


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """An argument vector: no shell reads it."""
    variable, text = _chosen_editor(environment)
    try:
        return shlex.split(text) or ["vi"]
    except ValueError as error:
        raise UsageError(f"cannot read {variable}: {error}", hint="mend the quotes in it") from error


def _chosen_editor(environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable that chooses it, and what it says; nothing where none does."""
    for variable in ("KUBE_EDITOR", "VISUAL", "EDITOR"):
        if text := environment.get(variable, "").strip():
            return variable, text
    return "", ""


def _with_problems(body: str, problems: Sequence[Problem]) -> str:
    header = f"{_INTRODUCTION}#\n# Not accepted:\n"
    # The lines in the sentences are those of the file as the editor shows it, below this comment.
    above = header.count("\n") + len(problems)
    placed = [replace(problem, line=problem.line + above if problem.line else 0) for problem in problems]
    said = "".join(f"#   {' '.join(str(problem).split())}\n" for problem in placed)
    return header + said + body


def _without_comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
