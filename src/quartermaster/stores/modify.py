"""Read, change, write, and again when somebody wrote in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quartermaster.resources.model import Object
from quartermaster.stores.base import Fence, Store
from quartermaster.support.errors import ConflictError

T = TypeVar("T", bound=Object)


async def modify(
    store: Store,
    kind: type[T],
    name: str,
    namespace: str,
    change: Callable[[T], T],
    *,
    status: bool = False,
    fence: Fence | None = None,
    attempts: int = 16,
) -> T:
    """Apply the pure function `change` to the object until it is written; unchanged objects are not written."""
    for attempt in range(attempts):
        current = await store.get(kind, name, namespace)
        wanted = change(current)
        if wanted == current:
            return current
        try:
            if status:
                return await store.update_status(wanted, fence=fence)
            return await store.update(wanted, fence=fence)
        except ConflictError:
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")
