"""An object as people read it: names in words, lists below each other, conditions and Events as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from quartermaster.cli import failures
from quartermaster.cli.arguments import parse_targets
from quartermaster.cli.finding import Query, find_groups
from quartermaster.cli.output import Document, as_document, nothing_found
from quartermaster.cli.session import Session
from quartermaster.cli.tables import NONE, UNKNOWN, Writer, age
from quartermaster.resources import Event, Object, Secret, kind_of
from quartermaster.support.errors import ForbiddenError

if TYPE_CHECKING:
    from quartermaster.stores import Store

_EVENTS_SHOWN = 50
# Shown above, or of no use to a person.
_HIDDEN_METADATA = ("name", "namespace", "labels", "annotations", "managedFields")
_TOP = ("apiVersion", "kind", "metadata")
_LABEL_WIDTH = 14
_ACRONYMS = {"uid": "UID", "uuid": "UUID", "api": "API", "ip": "IP", "ips": "IPs", "csi": "CSI", "url": "URL"}


async def describe(
    session: Session,
    words: Sequence[str],
    *,
    labels: str = "",
    fields: str = "",
    all_namespaces: bool = False,
    show_events: bool = True,
) -> int:
    targets = parse_targets(words)
    async with session.store(reads_only=True) as store:
        namespace = None if all_namespaces else session.namespace(store)
        groups = await find_groups(store, targets, Query(namespace, labels, fields))
        first = True
        for obj in (obj for group in groups for obj in group.objects):
            events = await _events_of(store, obj) if show_events else None
            click.echo(("" if first else "\n\n") + description(obj, events), nl=False)
            first = False
    missing = [sentence for group in groups for sentence in group.missing]
    for sentence in missing:
        failures.say(sentence)
    if first and not missing:
        click.echo(nothing_found([group.kind for group in groups], namespace), err=True)
    return failures.FAILED if missing else 0


def description(obj: Object, events: Sequence[Event] | None) -> str:
    document = as_document(obj)
    if isinstance(obj, Secret):
        document["data"] = {name: f"{len(value) * 3 // 4} bytes" for name, value in document.get("data", {}).items()}
    metadata = document["metadata"]
    lines = [_labelled("Name", metadata.get("name", ""))]
    if kind_of(obj).namespaced:
        lines.append(_labelled("Namespace", metadata.get("namespace", "")))
    for title in ("labels", "annotations"):
        lines += _pairs(title.capitalize(), metadata.get(title) or {})
    lines.append(_labelled("API Version", document["apiVersion"]))
    lines.append(_labelled("Kind", document["kind"]))
    rest = {name: value for name, value in metadata.items() if name not in _HIDDEN_METADATA}
    for name, value in [("metadata", rest), *((n, v) for n, v in document.items() if n not in _TOP)]:
        lines += _field(name, value, 0)
    if events is not None:
        lines += _event_lines(events)
    return "\n".join(lines) + "\n"


async def _events_of(store: Store, obj: Object) -> list[Event]:
    info, meta = kind_of(obj), obj.metadata
    fields = f"involvedObject.kind={info.kind},involvedObject.name={meta.name}"
    if meta.uid:
        fields += f",involvedObject.uid={meta.uid}"
    try:
        page = await store.list(Event, meta.namespace or None, fields=fields, limit=500)
    except ForbiddenError:
        return []
    events = sorted(page.items, key=lambda event: event.last_timestamp or event.event_time or "")
    return events[-_EVENTS_SHOWN:]


def _labelled(label: str, text: str) -> str:
    return f"{label}:".ljust(_LABEL_WIDTH) + (text or NONE)


def _pairs(label: str, pairs: dict[str, str]) -> Iterator[str]:
    shown = [
        f"{name}: {value}" if label == "Annotations" else f"{name}={value}" for name, value in sorted(pairs.items())
    ]
    yield _labelled(label, shown[0] if shown else "")
    for text in shown[1:]:
        yield " " * _LABEL_WIDTH + text


def _field(name: str, value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    title = name if depth and not _is_field_name(name) else _in_words(name)
    if name == "conditions" and isinstance(value, list) and all(isinstance(item, dict) for item in value):
        yield f"{indent}{title}:"
        yield from _conditions(value, indent + "  ")
    elif isinstance(value, dict) and value:
        yield f"{indent}{title}:"
        for child, inner in value.items():
            yield from _field(child, inner, depth + 1)
    elif isinstance(value, list) and value:
        yield f"{indent}{title}:"
        for item in value:
            yield from _item(item, depth + 1)
    else:
        yield from _scalar(f"{indent}{title}:", value, indent)


def _item(item: Any, depth: int) -> Iterator[str]:
    if not isinstance(item, dict):
        yield from _scalar("  " * depth + "-", item, "  " * depth)
        return
    lines = [line for name, value in item.items() for line in _field(name, value, depth + 1)]
    for position, line in enumerate(lines):
        yield line if position else "  " * depth + "- " + line[2 * depth + 2 :]


def _scalar(start: str, value: Any, indent: str) -> Iterator[str]:
    if value is None or value in ({}, [], ""):
        yield f"{start}  {NONE}"
        return
    text = str(value).lower() if isinstance(value, bool) else str(value)
    lines = text.rstrip("\n").split("\n")
    if len(lines) == 1:
        yield f"{start} {lines[0]}" if start.endswith("-") else f"{start}  {lines[0]}"
        return
    yield start
    for line in lines:
        yield f"{indent}  {line}"


def _conditions(conditions: list[Document], indent: str) -> Iterator[str]:
    writer = Writer(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"])
    rows = [
        [
            str(condition.get("type", "")),
            str(condition.get("status", "")),
            condition.get("reason") or NONE,
            age(condition["lastTransitionTime"]) if condition.get("lastTransitionTime") else UNKNOWN,
            " ".join((condition.get("message") or NONE).split()),
        ]
        for condition in conditions
    ]
    for line in writer.format(rows).splitlines():
        yield indent + line


def _event_lines(events: Sequence[Event]) -> Iterator[str]:
    if not events:
        yield _labelled("Events", "")
        return
    yield "Events:"
    writer = Writer(["TYPE", "REASON", "AGE", "FROM", "MESSAGE"])
    rows = []
    for event in events:
        last = event.last_timestamp or event.event_time or ""
        when = age(last) if last else UNKNOWN
        if event.count > 1 and event.first_timestamp:
            when = f"{when} (x{event.count} over {age(event.first_timestamp)})"
        source = event.source.component or event.reporting_component
        rows.append([event.type, event.reason, when, source or NONE, " ".join(event.message.split())])
    for line in writer.format(rows).splitlines():
        yield "  " + line


def _is_field_name(name: str) -> bool:
    """A field of the API, not a key that a person chose (a label, a host)."""
    return re.fullmatch(r"[a-z][A-Za-z0-9]*", name) is not None


def _in_words(name: str) -> str:
    """nodeSelector → Node Selector; storageIPs → Storage IPs."""
    words = re.findall(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return " ".join(_ACRONYMS.get(word.lower(), word[:1].upper() + word[1:]) for word in words) or name
