"""What is let in: a document that a user applies or a controller writes, with defaults, or all of its mistakes.

`admit` is for what a user gives. Our own stores call `fill_defaults` and `validate` (and `validate_update`) on every
write, so the way through for a document that is fine is short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Protocol

from quartermaster.resources.defaults import fill_defaults
from quartermaster.resources.fastcheck import checker_of
from quartermaster.resources.kind import Kind, all_kinds, find_version, kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.names import (
    as_subdomain,
    check_annotations_size,
    check_dns_label,
    check_label_value,
    check_qualified_name,
    check_subdomain,
)
from quartermaster.resources.paths import join, lies_in, parent
from quartermaster.resources.rules import Rule, rules_of, update_rules_of
from quartermaster.resources.schema import OPEN, Schema, full_schema_of, immutable_fields, metadata_schema
from quartermaster.resources.validation import explain, nearest
from quartermaster.support.errors import InvalidError, Problem

__all__ = ["LineMap", "admit", "class_of", "fill_defaults", "title_of", "validate", "validate_update"]

Document = dict[str, Any]


class LineMap(Protocol):
    """Knows on which line of its file a path of a document stands."""

    def line_of(self, path: str) -> int: ...


def admit(document: Document, *, lines: LineMap | None = None) -> Document:
    """The document with defaults filled in. InvalidError lists everything that is wrong with it."""
    filled = fill_defaults(document) if isinstance(document, dict) else document
    problems = validate(filled)
    if problems:
        raise InvalidError(f"cannot accept {title_of(document)}", with_lines(problems, lines))
    return filled


def validate(document: Document, *, unknown_ok: bool = False) -> list[Problem]:
    """Everything that is wrong with a document. With `unknown_ok`, fields that this version does not know are fine."""
    cls = class_of(document)
    if isinstance(cls, Problem):
        return _problems_of_no_kind(document, cls, unknown_ok)
    if not checker_of(cls, unknown_ok)(document):
        return _all_problems(cls, document, unknown_ok)
    problems = list(_metadata_problems(document.get("metadata", {}), kind_of(cls)))
    for rule in rules_of(cls):
        problems.extend(rule(document))
    return problems


def validate_update(old: Document, new: Document) -> list[Problem]:
    """What may not change and did. Both documents are valid by themselves."""
    cls = class_of(new)
    if isinstance(cls, Problem):
        return [cls]
    if (old.get("apiVersion"), old.get("kind")) != (new.get("apiVersion"), new.get("kind")):
        return [Problem("kind", f"cannot change from {old.get('kind')} to {new.get('kind')}")]
    problems = []
    for field in immutable_fields(cls):
        before, after = (_at(document, field.path, field.default) for document in (old, new))
        if before != after and not (field.mode == "once set" and before in (None, "")):
            path = ".".join(field.path)
            problems.append(Problem(path, _changed(before, after), "delete the object and create it anew"))
    for rule in update_rules_of(cls):
        problems.extend(rule(old, new))
    return problems


def class_of(document: Any) -> type[Object] | Problem:
    """The class of a document, or why there is none."""
    if not isinstance(document, dict):
        return Problem("", "must be a map of fields with apiVersion, kind and metadata")
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str) and (cls := find_version(api_version, kind)) is not None:
        return cls
    return _why_no_class(document, api_version, kind)


def _why_no_class(document: Document, api_version: Any, kind: Any) -> Problem:
    kinds = {kind_of(known).kind: kind_of(known).api_version for known in all_kinds()}
    for field, value in (("kind", kind), ("apiVersion", api_version)):
        if value is not None and not isinstance(value, str):
            return next(explain(value, _common_schema()["properties"][field], field))
    if not kind:
        return Problem("kind", _kind_is_missing(document), "for example kind: StorageNode")
    if kind not in kinds:
        near = nearest(kind, kinds)
        return Problem("kind", f'there is no kind "{kind}"', f'did you mean "{near}"?' if near else "")
    if not api_version:
        return Problem("apiVersion", "is missing", f"apiVersion: {kinds[kind]}")
    return Problem("apiVersion", f'"{api_version}" has no kind {kind}', f"apiVersion: {kinds[kind]}")


def title_of(document: Any) -> str:
    """How an error names a document: StorageNode "a", as far as that can be told."""
    if not isinstance(document, dict):
        return "the document"
    metadata = document.get("metadata")
    name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
    kind = document.get("kind") if isinstance(document.get("kind"), str) else "the document"
    return f'{kind} "{name}"' if isinstance(name, str) else str(kind)


def with_lines(problems: Iterable[Problem], lines: LineMap | None) -> list[Problem]:
    """The problems, each with its line, in the order of the file."""
    if lines is None:
        return sorted(problems, key=lambda problem: problem.path)
    placed = [Problem(p.path, p.message, p.fix, p.line or lines.line_of(p.path)) for p in problems]
    return sorted(placed, key=lambda problem: (problem.line, problem.path))


# Nobody mends more at once, and to explain a list of a million wrong elements takes minutes.
_PROBLEMS_LIMIT = 200
_NO_METADATA = Problem("metadata.name", "is missing", "every object has a name")


@cache
def _common_schema() -> Schema:
    """What is known of an object whose kind is not."""
    properties: dict[str, Schema] = {
        "apiVersion": {"type": "string", "description": "For example apiVersion: coreos.com/v1."},
        "kind": {"type": "string", "description": "For example kind: StorageNode."},
        "metadata": {**metadata_schema(), "description": "Every object has a name."},
        "spec": {"type": "object"},
        "status": {"type": "object"},
    }
    return {"type": "object", "required": ["apiVersion", "kind", "metadata"], "properties": properties, OPEN: True}


def _kind_is_missing(document: Document) -> str:
    folded = next((name for name in document if isinstance(name, str) and name.lower() == "kind"), None)
    return "is missing" if folded in (None, "kind") else f'is missing; it is spelled "{folded}" here'


def _problems_of_no_kind(document: Any, why: Problem, unknown_ok: bool) -> list[Problem]:
    """Why there is no class for it, and what is wrong with the fields that every object has."""
    if not isinstance(document, dict):
        return [why]
    checks: list[Rule] = [lambda usable: _metadata_problems(usable["metadata"], None)]
    further = _problems_by(_common_schema(), document, unknown_ok, checks)
    return [why, *(problem for problem in further if problem.path != why.path)]


def _all_problems(cls: type[Object], document: Document, unknown_ok: bool) -> list[Problem]:
    checks: list[Rule] = [lambda usable: _metadata_problems(usable.get("metadata", {}), kind_of(cls)), *rules_of(cls)]
    return _problems_by(full_schema_of(cls), document, unknown_ok, checks)


def _problems_by(schema: Schema, document: Document, unknown_ok: bool, checks: list[Rule]) -> list[Problem]:
    """What the schema finds, and of the checks what is not about the same."""
    found = list(islice(explain(document, schema, unknown_ok=unknown_ok), _PROBLEMS_LIMIT))
    wrong = {problem.path for problem in found}
    usable = _without(document, "", wrong)
    left_out = wrong | {parent(path) for path in wrong if _is_element(path)}
    further = [problem for check in checks for problem in _as_far_as_possible(check, usable)]
    return found + [p for p in further if not any(lies_in(p.path, other) for other in left_out)]


def _is_element(path: str) -> bool:
    return path.endswith("]") and not path.endswith('"]')


def _without(value: Any, path: str, wrong: set[str]) -> Any:
    """The value without what is wrong in it, a list with something wrong in it altogether: positions must not shift."""
    if isinstance(value, dict):
        kept = ((name, join(path, str(name))) for name in value)
        whole = {name: _without(value[name], here, wrong) for name, here in kept if here not in wrong}
        return {name: child for name, child in whole.items() if child is not None}
    if isinstance(value, list):
        if any(join(path, position) in wrong for position in range(len(value))):
            return None
        return [_without(child, join(path, position), wrong) for position, child in enumerate(value)]
    return value


def _as_far_as_possible(check: Rule, document: Document) -> list[Problem]:
    """A rule expects what the schema promises; one that trips over what is missing has nothing more to say."""
    problems: list[Problem] = []
    try:
        problems.extend(check(document))
    except (KeyError, TypeError, AttributeError):
        return problems
    return problems


def _metadata_problems(metadata: Document, info: Kind | None) -> Iterator[Problem]:
    yield from _name_problems(metadata, info)
    for key, value in metadata.get("labels", {}).items():
        if wrong := check_qualified_name(key):
            yield Problem(join("metadata.labels", key), f"the key of a label {wrong}")
        if wrong := check_label_value(value):
            yield Problem(join("metadata.labels", key), f'the value of a label {wrong}; is "{value}"')
    if annotations := metadata.get("annotations"):
        for key in annotations:
            if wrong := check_qualified_name(key.lower()):
                yield Problem(join("metadata.annotations", key), f"the key of an annotation {wrong}")
        if wrong := check_annotations_size(annotations):
            yield Problem("metadata.annotations", wrong)
    for position, name in enumerate(metadata.get("finalizers", ())):
        if wrong := check_qualified_name(name):
            yield Problem(f"metadata.finalizers[{position}]", wrong)


def _name_problems(metadata: Document, info: Kind | None) -> Iterator[Problem]:
    check = check_dns_label if info is not None and info.kind == "Namespace" else check_subdomain
    name, prefix, namespace = metadata.get("name"), metadata.get("generateName"), metadata.get("namespace")
    if not name and not prefix:
        yield _NO_METADATA
    for field, text in (("name", name), ("generateName", (prefix or "").rstrip("-."))):
        if text and (wrong := check(text)):
            mended = as_subdomain(text)
            fix = f'for example "{mended}"' if mended and not check(mended) else ""
            yield Problem(f"metadata.{field}", f'{wrong}; is "{metadata[field]}"', fix)
    if namespace and info is not None and not info.namespaced:
        yield Problem("metadata.namespace", f"must not be set: {info.plural} are in no namespace", "remove it")
    elif namespace and (wrong := check_dns_label(namespace)):
        yield Problem("metadata.namespace", f'{wrong}; is "{namespace}"')


def _at(document: Document, path: tuple[str, ...], default: Any) -> Any:
    value: Any = document
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
        if value is None:
            # A default is filled into an object that exists only; below one that does not there is nothing.
            return default if name == path[-1] else None
    return value


def _changed(before: Any, after: Any) -> str:
    if before is None:
        return f"cannot be added later: {after}"
    if after is None:
        return f"cannot be removed: {before}"
    return f"cannot change from {before} to {after}"
