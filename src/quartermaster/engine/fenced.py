"""A store whose writes are those of one leader in one term.

Each write carries the fence, and our own stores compare it with the Lease in the same transaction. Before that, the
leader's own clock is asked: once the lease may have run out (the process was stopped for a while), nothing is sent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeVar

from quartermaster.resources.model import Object
from quartermaster.stores.base import Event, Fence, Page, Propagation, Store

T = TypeVar("T", bound=Object)


class Term(Protocol):
    """The leadership that writes are made under."""

    @property
    def fence(self) -> Fence: ...

    def check(self) -> None:
        """FencedError when it is over, or may be."""
        ...


class FencedStore:
    """A `Store`; a fence given to a call is overridden by the term's own."""

    def __init__(self, store: Store, term: Term) -> None:
        self._store = store
        self._term = term

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def fences(self) -> bool:
        return self._store.fences

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return await self._store.get(kind, name, namespace)

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continues: str = "",
    ) -> Page[T]:
        return await self._store.list(kind, namespace, labels=labels, fields=fields, limit=limit, continues=continues)

    def watch(
        self, kind: type[T], namespace: str | None = None, *, since: str, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[T], None]:
        return self._store.watch(kind, namespace, since=since, labels=labels, fields=fields)

    async def create(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        return await self._store.create(obj, fence=self._fence(fence), dry_run=dry_run)

    async def update(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        return await self._store.update(obj, fence=self._fence(fence), dry_run=dry_run)

    async def update_status(self, obj: T, *, fence: Fence | None = None, dry_run: bool = False) -> T:
        return await self._store.update_status(obj, fence=self._fence(fence), dry_run=dry_run)

    async def apply(
        self,
        document: dict[str, Any],
        *,
        manager: str = "",
        force: bool = False,
        status: bool = False,
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> Object:
        return await self._store.apply(
            document, manager=manager, force=force, status=status, fence=self._fence(fence), dry_run=dry_run
        )

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        revision: str = "",
        propagation: Propagation = "Background",
        fence: Fence | None = None,
        dry_run: bool = False,
    ) -> T:
        return await self._store.delete(
            kind,
            name,
            namespace,
            uid=uid,
            revision=revision,
            propagation=propagation,
            fence=self._fence(fence),
            dry_run=dry_run,
        )

    async def lease_held(self, namespace: str, name: str) -> bool | None:
        return await self._store.lease_held(namespace, name)

    async def close(self) -> None:
        """The store belongs to whoever opened it."""

    def _fence(self, _given: Fence | None) -> Fence:
        self._term.check()
        return self._term.fence
