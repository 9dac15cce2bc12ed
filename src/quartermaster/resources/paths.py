"""Where something stands in a document, as people read it: spec.devices[1], metadata.labels["example.org/a b"]."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def join(path: str, step: str | int) -> str:
    """The path of a field or of a position in a list."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if not _PLAIN.fullmatch(step):
        return f'{path}["{step}"]'
    return f"{path}.{step}" if path else step


def parent(path: str) -> str:
    """The path without its last step; "" at the top."""
    if path.endswith('"]'):
        return path[: path.rindex('["')]
    if path.endswith("]"):
        return path[: path.rindex("[")]
    return path.rpartition(".")[0]


def lies_in(path: str, outer: str) -> bool:
    """Whether `path` is `outer` or below it."""
    return path == outer or (path.startswith(outer) and path[len(outer) : len(outer) + 1] in (".", "["))
