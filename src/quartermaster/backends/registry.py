"""The storage systems that are installed, found by entry point. No module names one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from quartermaster.backends.base import ENTRY_POINTS, Backend, ServiceAgent
from quartermaster.support.errors import UsageError


def installed_types() -> tuple[str, ...]:
    """Names only: nothing of them is imported."""
    return tuple(sorted(_found()))


def backend_of(type: str) -> Backend:
    found = _found()
    if type not in found:
        raise UsageError(
            f'cannot use the storage system "{type}": no backend of that name is installed',
            hint=f"there are {', '.join(sorted(found)) or 'none'}",
        )
    return _load(found[type])


def installed_backends(types: Sequence[str] = ()) -> tuple[Backend, ...]:
    """All of them, or those of the given types, by type."""
    return tuple(backend_of(one) for one in (sorted(dict.fromkeys(types)) or installed_types()))


def installed_agents() -> tuple[ServiceAgent, ...]:
    """Every service agent that a host may be asked for."""
    return tuple(agent for backend in installed_backends() for agent in backend.agents())


def shares_hosts(backend: Backend) -> bool:
    """Whether a host may be a node of several clusters of this type; a backend that says nothing wants it alone."""
    return bool(getattr(backend, "shares_hosts", False))


def _found() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


@cache
def _load(point: EntryPoint) -> Backend:
    made: Backend = point.load()()
    if made.type != point.name:
        raise UsageError(f'cannot use the backend "{point.name}": it says that its type is "{made.type}"')
    return made
