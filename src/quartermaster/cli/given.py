"""The documents that a person gives with -f: read and checked whole, put into a namespace, and in an order to write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import IO, Any

from quartermaster.cli.arguments import full_name
from quartermaster.cli.progress import announce_reading
from quartermaster.resources import Object, kind_of
from quartermaster.resources.admission import class_of, title_of
from quartermaster.resources.manifests import Manifest, check_manifests, read_manifests
from quartermaster.support.errors import InvalidError, Problem, UsageError

STDIN = "-"
NOTHING_WRITTEN = "nothing was written"


class Given:
    """One document, and where it stands."""

    def __init__(self, manifest: Manifest, kind: type[Object]) -> None:
        self.manifest = manifest
        self.document: dict[str, Any] = manifest.document
        self.kind = kind

    @property
    def name(self) -> str:
        name: str = self.document["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.document["metadata"].get("namespace", "")
        return namespace

    @property
    def title(self) -> str:
        return full_name(self.kind, self.name)


def read_given(files: Sequence[str]) -> list[Manifest]:
    """Everything in the files. InvalidError has all mistakes of all of them, and nothing has been written then."""
    if files.count(STDIN) > 1:
        raise UsageError("cannot read standard input twice", hint="give -f - once")
    sources: list[str | IO[bytes]] = [sys.stdin.buffer if name == STDIN else name for name in files]
    announce_reading(files)
    try:
        manifests = read_manifests(sources)
        check_manifests(manifests)
    except InvalidError as error:
        raise InvalidError(error.message, [_with_hint(p) for p in error.problems], hint=error.hint) from error
    unnamed = [
        Problem(
            "metadata.name",
            "is missing: what is applied must have a name",
            "generateName makes a new object each time",
            manifest.lines.line_of("metadata.generateName"),
            manifest.source,
        )
        for manifest in manifests
        if not manifest.document["metadata"].get("name")
    ]
    if unnamed:
        raise InvalidError("cannot accept what is given", unnamed, hint=NOTHING_WRITTEN)
    if not manifests:
        raise UsageError("cannot find an object in what is given", hint="the files are empty")
    return manifests


def _with_hint(problem: Problem) -> Problem:
    """A kind that nobody knows and that resembles none: the list of them is the next thing to look at."""
    return (
        replace(problem, fix="`qm explain` lists the kinds") if problem.path == "kind" and not problem.fix else problem
    )


def place(manifests: Sequence[Manifest], namespace: str, *, given_namespace: str = "") -> list[Given]:
    """Into their namespaces, Namespaces first, else as they stand. With -n, a document may not name another one."""
    placed = [_into(manifest, namespace) for manifest in manifests]
    problems = []
    first: dict[tuple[Any, ...], Given] = {}
    for given in placed:
        line = given.manifest.lines.line_of("metadata.namespace")
        if given_namespace and given.namespace not in ("", given_namespace):
            problems.append(
                Problem(
                    "metadata.namespace",
                    f'is "{given.namespace}" and -n says "{given_namespace}"',
                    "leave out one of them",
                    line,
                    given.manifest.source,
                )
            )
        other = first.setdefault((kind_of(given.kind).resource, given.namespace, given.name), given)
        if other is not given:
            what = f"{title_of(given.document)} is declared twice in the namespace {given.namespace}"
            fix = f"it is declared in {other.manifest.place} already"
            problems.append(Problem("metadata.name", what, fix, line, given.manifest.source))
    if problems:
        raise InvalidError("cannot accept what is given", problems, hint=NOTHING_WRITTEN)
    return sorted(placed, key=lambda given: kind_of(given.kind).kind != "Namespace")


def _into(manifest: Manifest, namespace: str) -> Given:
    document = manifest.document
    kind = class_of(document)
    if isinstance(kind, Problem):
        raise InvalidError("cannot accept what is given", [kind])
    if kind_of(kind).namespaced and not document["metadata"].get("namespace"):
        document = {**document, "metadata": {**document["metadata"], "namespace": namespace}}
        manifest = replace(manifest, document=document)
    return Given(manifest, kind)
