"""Tables as kubectl prints them: upper-case headers, aligned, three blanks between columns, nothing drawn.

The columns are those that the kind declares for its CRD, so that `qm get` and `kubectl get` show the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from quartermaster.cli.jsonpath import Path, as_text, parse_path
from quartermaster.resources import Column, Kind
from quartermaster.support import clock

_PADDING = 3
_NARROWEST = 6
NONE = "<none>"
UNKNOWN = "<unknown>"

_PHASE = ".status.phase"
_TERMINATING = "Terminating"
_GOOD = frozenset({"ONLINE", "Ready", "Bound", "Available", "Running", "Active", "Online", "succeeded"})
_BAD = frozenset({"OFFLINE", "Failed", "Lost", "Offline", _TERMINATING, "failed"})
_COLOURED_COLUMNS = frozenset({"STATUS", "STATE", "PHASE"})


class Writer:
    """Aligns rows under headers, and remembers the widths, so that rows which come later stand under the earlier."""

    def __init__(self, headers: Sequence[str], *, show_headers: bool = True) -> None:
        self._headers = tuple(headers)
        self._pending = show_headers
        self._widths = [0] * len(headers)

    def format(self, rows: Iterable[Sequence[str]]) -> str:
        """The rows as text, after the headers when these have not been shown yet."""
        table = [tuple(row) for row in rows]
        shown = [self._headers, *table] if self._pending else table
        for row in shown:
            for position, cell in enumerate(row):
                self._widths[position] = max(self._widths[position], _NARROWEST, len(cell) + _PADDING)
        header = [self._line(self._headers)] if self._pending else []
        self._pending = False
        return "".join([*header, *(self._line(row, coloured=True) for row in table)])

    def _line(self, row: Sequence[str], *, coloured: bool = False) -> str:
        last = len(row) - 1
        cells = []
        for position, cell in enumerate(row):
            padding = "" if position == last else " " * (self._widths[position] - len(cell))
            shown = _coloured(self._headers[position], cell) if coloured else cell
            cells.append(shown + padding)
        return "".join(cells) + "\n"


class Columns:
    """What a table shows of objects of one kind."""

    def __init__(
        self,
        kind: Kind,
        *,
        wide: bool = False,
        with_namespace: bool = False,
        with_kind: bool = False,
        with_labels: bool = False,
        before: Sequence[str] = (),
    ) -> None:
        self._kind = kind
        self._paths = [(column, parse_path(column.path)) for column in kind.columns if wide or not column.wide]
        self._with_namespace = with_namespace and kind.namespaced
        self._with_kind = with_kind
        self._with_labels = with_labels
        self._before = tuple(before)

    @property
    def headers(self) -> list[str]:
        found = [*self._before]
        if self._with_namespace:
            found.append("NAMESPACE")
        found += ["NAME", *(column.name.upper() for column, _ in self._paths)]
        return [*found, "LABELS"] if self._with_labels else found

    def cells(self, document: dict[str, Any], *before: str) -> list[str]:
        metadata = document["metadata"]
        found = [*before]
        if self._with_namespace:
            found.append(metadata.get("namespace", ""))
        name = metadata.get("name", "")
        if self._with_kind:
            prefix = f"{self._kind.singular}.{self._kind.group}" if self._kind.group else self._kind.singular
            name = f"{prefix}/{name}"
        found += [name, *(self._cell(column, path, document) for column, path in self._paths)]
        if self._with_labels:
            labels = metadata.get("labels") or {}
            found.append(",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE)
        return found

    def _cell(self, column: Column, path: Path, document: dict[str, Any]) -> str:
        """Of its own kinds the API server shows no phase once they are being deleted."""
        is_leaving = not self._kind.group and "deletionTimestamp" in document["metadata"]
        return _TERMINATING if is_leaving and column.path == _PHASE else cell(column, path, document)


def cell(column: Column, path: Path, document: dict[str, Any]) -> str:
    """One value, on one line."""
    values = [value for value in path.find(document) if value is not None]
    if column.type == "date":
        return age(values[0]) if values and isinstance(values[0], str) else UNKNOWN
    return " ".join(" ".join(as_text(value).split()) for value in values) or NONE


def age(timestamp: str) -> str:
    """How long ago, in the few characters that kubectl uses: 5s, 3m, 2h, 4d."""
    try:
        seconds = clock.wall_time() - clock.parse_timestamp(timestamp)
    except ValueError:
        return UNKNOWN
    return duration(seconds)


def duration(seconds: float) -> str:
    """A length of time in at most two units, the second one only while it matters."""
    whole = int(seconds)
    if whole < 0:
        # Two clocks differ by a second easily.
        return "0s" if seconds > -2 else "<invalid>"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // (86400 * 365)
    steps = (
        (minutes < 10, minutes, "m", whole % 60, "s"),
        (hours < 3, minutes, "m", 0, ""),
        (hours < 8, hours, "h", minutes % 60, "m"),
        (hours < 48, hours, "h", 0, ""),
        (days < 8, days, "d", hours % 24, "h"),
        (days < 730, days, "d", 0, ""),
        (years < 8, years, "y", days % 365, "d"),
        (True, years, "y", 0, ""),
    )
    _, large, large_unit, small, small_unit = next(step for step in steps if step[0])
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")


def _coloured(header: str, text: str) -> str:
    if header not in _COLOURED_COLUMNS:
        return text
    if text in _GOOD:
        return click.style(text, fg="green")
    return click.style(text, fg="red") if text in _BAD else text
