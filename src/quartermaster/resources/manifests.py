"""Files that a user gives: read whole, with the line of every field, and checked whole before anything is written.

Sizes are bounded before anything is parsed. All mistakes of all files come in one error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import yaml

from quartermaster.resources.admission import class_of, fill_defaults, title_of, validate, with_lines
from quartermaster.resources.paths import lies_in
from quartermaster.resources.yamltext import (
    DEPTH_LIMIT,
    Lines,
    Place,
    TooDeepError,
    TooManyAliasesError,
    explain_broken_yaml,
    explain_text,
    parse_yaml,
)
from quartermaster.support.errors import InvalidError, Problem, UsageError

DOCUMENT_LIMIT_BYTES = 3 * 1024 * 1024
FILE_LIMIT_BYTES = 32 * 1024 * 1024
SUFFIXES = (".yaml", ".yml", ".json")

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Manifest:
    """One document of a file."""

    document: Any
    source: str
    line: int
    lines: Lines
    problems: tuple[Problem, ...] = ()  # mistakes of writing, found before its meaning was looked at

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}"


def read_manifests(sources: Iterable[str | Path | IO[bytes]]) -> list[Manifest]:
    """The documents in files, in directories (recursively, in order of name) and in streams.

    InvalidError when something cannot be read as a document; it then also lists what is wrong with the others.
    """
    manifests: list[Manifest] = []
    problems: list[Problem] = []
    for source, text in _texts(sources):
        found, wrong = parse_manifests(text, source)
        manifests += found
        problems += wrong
    if problems:
        raise _refusal([*problems, *_problems_of(manifests)])
    return manifests


def check_manifests(manifests: Sequence[Manifest]) -> list[dict[str, Any]]:
    """The documents with defaults filled in. InvalidError lists the mistakes of all of them, file by file."""
    problems = _problems_of(manifests)
    if problems:
        raise _refusal(problems)
    return [fill_defaults(manifest.document) for manifest in manifests]


def parse_manifests(text: str, source: str) -> tuple[list[Manifest], list[Problem]]:
    """The documents in a text, and what could not be read as one. One broken document hides no other."""
    manifests: list[Manifest] = []
    problems: list[Problem] = []
    for part, first_line in _split(text):
        size = len(part.encode())
        if size > DOCUMENT_LIMIT_BYTES:
            problems.append(
                Problem(
                    "",
                    f"the document is too large: {size / _MEBIBYTE:.1f} MiB, and "
                    f"{DOCUMENT_LIMIT_BYTES // _MEBIBYTE} MiB can be stored",
                    "split it into several objects",
                    first_line,
                    source,
                )
            )
            continue
        try:
            manifests += _parse_part(part, first_line, source)
        except yaml.YAMLError as error:
            problems.append(replace(explain_broken_yaml(part, error, first_line=first_line), source=source))
        except (TooDeepError, TooManyAliasesError) as error:
            problems.append(Problem("", f"cannot be a manifest: {error}", "write it out", error.line, source))
        except json.JSONDecodeError as error:
            line = first_line + error.lineno - 1
            problems.append(Problem("", f"is not JSON, column {error.colno}: {error.msg}", "", line, source))
    return manifests, problems


def _texts(sources: Iterable[str | Path | IO[bytes]]) -> Iterator[tuple[str, str]]:
    for source in sources:
        if not isinstance(source, str | Path):
            name = getattr(source, "name", "")
            yield _text(source.read(FILE_LIMIT_BYTES + 1), name if isinstance(name, str) and name else "<stdin>")
            continue
        for path in _files(Path(source)):
            try:
                with path.open("rb") as file:
                    yield _text(file.read(FILE_LIMIT_BYTES + 1), str(path))
            except OSError as error:
                raise UsageError(f'cannot read "{path}": {error.strerror or error}') from error


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f'cannot read "{path}": there is no such file or directory')
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise UsageError(f'cannot find a manifest in "{path}"', hint=f"looked for {', '.join(SUFFIXES)}")
    return found


def _text(data: bytes, source: str) -> tuple[str, str]:
    if len(data) > FILE_LIMIT_BYTES:
        raise InvalidError(
            f'cannot read "{source}": it is larger than {FILE_LIMIT_BYTES // _MEBIBYTE} MiB',
            hint="split it into several files",
        )
    try:
        return source, data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidError(
            f'cannot read "{source}": it is not UTF-8 text, first on line {line}', hint="save it as UTF-8"
        ) from error


def _split(text: str) -> Iterator[tuple[str, int]]:
    """The parts between lines that begin with ---, which YAML allows nowhere else, each with its first line."""
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    line = 1
    position = 0
    for start, end in zip(starts, ends, strict=True):
        line += text.count("\n", position, start)
        position = start
        part = text[start:end]
        if not all(row.lstrip().startswith("#") or row.startswith("%") or not row.strip() for row in part.splitlines()):
            yield part, line


def _parse_part(part: str, first_line: int, source: str) -> Iterator[Manifest]:
    if part.lstrip().startswith(("{", "[")) and (found := _parse_json(part, first_line)) is not None:
        for document in found:
            yield from _flatten(Manifest(document, source, first_line, _json_lines(part, first_line, len(found))))
        return
    if source.endswith(".json"):
        json.loads(part)  # raises, and says where
    for parsed in parse_yaml(part, first_line=first_line):
        if parsed.document is not None or parsed.problems:
            line = parsed.lines.tree.line
            problems = parsed.problems
            if isinstance(parsed.document, str) and (told := explain_text(part, first_line=first_line)) is not None:
                problems = (*problems, told)
            yield from _flatten(Manifest(parsed.document, source, line, parsed.lines, problems))


def _parse_json(part: str, first_line: int) -> list[Any] | None:
    """Documents one after the other, or None: then YAML, which JSON is nearly a part of, has the last word."""
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)
    found = []
    position = 0
    try:
        while position < len(part):
            document, position = decoder.raw_decode(part, _skip_space(part, position))
            if _is_too_deep(document):
                raise TooDeepError(first_line)
            found.append(document)
            position = _skip_space(part, position)
    except RecursionError as error:
        raise TooDeepError(first_line) from error
    except json.JSONDecodeError:
        return None
    return found


def _is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(DEPTH_LIMIT):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise json.JSONDecodeError("a name is given twice", "", 0)  # the YAML reader says which, and where
    return found


def _no_constant(text: str) -> Any:
    raise json.JSONDecodeError(f"{text} is not JSON", "", 0)


def _json_lines(part: str, first_line: int, count: int) -> Lines:
    """JSON has no marks of its own, and YAML reads nearly all of it."""
    if count == 1:
        try:
            return next(parse_yaml(part, first_line=first_line)).lines
        except (yaml.YAMLError, ValueError, StopIteration):
            pass
    return Lines(Place(first_line))


def _flatten(manifest: Manifest) -> Iterator[Manifest]:
    """A List is what it lists."""
    document = manifest.document
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(document.get("items"), list):
        yield manifest
        return
    # The items of a StorageNodeList, as an API server gives them, do not repeat what they are.
    head = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for position, listed in enumerate(document["items"]):
        lines = manifest.lines.below("items", position)
        item = {**head, **listed} if isinstance(listed, dict) else listed
        problems = manifest.problems if position == 0 else ()
        yield Manifest(item, manifest.source, lines.tree.line, lines, problems)


def _problems_of(manifests: Iterable[Manifest]) -> list[Problem]:
    problems: list[Problem] = []
    first: dict[tuple[Any, ...], Manifest] = {}
    for manifest in manifests:
        document = fill_defaults(manifest.document) if isinstance(manifest.document, dict) else manifest.document
        written = manifest.problems
        found = [*written, *(p for p in validate(document) if not any(lies_in(p.path, w.path) for w in written))]
        problems += [replace(p, source=manifest.source) for p in with_lines(found, manifest.lines)]
        name = _identity(document)
        if name is not None and first.setdefault(name, manifest) is not manifest:
            problems.append(
                Problem(
                    "metadata.name",
                    f"{title_of(document)} is declared twice",
                    f"it is declared in {first[name].place} already",
                    manifest.lines.line_of("metadata.name"),
                    manifest.source,
                )
            )
    return problems


def _identity(document: Any) -> tuple[Any, ...] | None:
    """What may occur once only in what is applied together."""
    if isinstance(class_of(document), Problem) or not isinstance(document.get("metadata"), dict):
        return None
    metadata = document["metadata"]
    if not isinstance(metadata.get("name"), str):
        return None
    group = document["apiVersion"].rpartition("/")[0]
    return group, document["kind"], metadata.get("namespace") or "", metadata["name"]


def _refusal(problems: list[Problem]) -> InvalidError:
    files = list(dict.fromkeys(problem.source for problem in problems))
    what = files[0] if len(files) == 1 else f"{len(files)} files"
    order = {source: position for position, source in enumerate(files)}
    ordered = sorted(problems, key=lambda p: (order[p.source], p.line, p.path))
    return InvalidError(f"cannot accept {what}", ordered, hint="nothing was written")
