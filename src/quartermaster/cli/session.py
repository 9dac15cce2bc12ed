"""What all commands share: the chosen store, the namespace, and the loop that runs them.

A command that writes names the store on standard error, so that nobody writes to a production cluster by accident.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quartermaster.cli.contexts import Choice, choose

if TYPE_CHECKING:
    from quartermaster.stores import Store

T = TypeVar("T")
MANAGER = "qm"
DEFAULT_NAMESPACE = "default"
# A person waits: what does not answer within this is told to be away. Programs that run for days wait longer.
PATIENCE_S = 8.0


class Session:
    """One run of `qm`."""

    def __init__(self, *, store_url: str, namespace: str, verbosity: int) -> None:
        self.given_store = store_url
        self.given_namespace = namespace
        self.verbosity = verbosity

    def override(self, *, store_url: str | None, namespace: str | None, verbosity: int = 0) -> None:
        """`qm get -n NAME` means the same as `qm -n NAME get`."""
        self.given_store = store_url or self.given_store
        self.given_namespace = namespace or self.given_namespace
        self.verbosity += verbosity

    @cached_property
    def choice(self) -> Choice:
        return choose(self.given_store, os.environ)

    def namespace(self, store: Store) -> str:
        """The one that was given, else the context's own, else that of the kubeconfig's context, else "default"."""
        own: str = getattr(store, "namespace", "")
        return self.given_namespace or self.choice.namespace or own or DEFAULT_NAMESPACE

    @asynccontextmanager
    async def store(self, *, manager: str = MANAGER) -> AsyncIterator[Store]:
        from quartermaster.stores import open_store

        store = await open_store(self.choice.store, manager=manager, patience_s=PATIENCE_S)
        try:
            yield store
        finally:
            await store.close()

    def name_store(self, store: Store) -> None:
        """Said by every command that writes."""
        click.echo(click.style(f"store: {store.url} ({self.choice.because})", dim=True), err=True)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a command's coroutine; Ctrl-C cancels it and lets it clean up."""
        import asyncio

        if self.verbosity:
            from quartermaster.support import log

            log.configure(verbosity=self.verbosity)
        return asyncio.run(work())
