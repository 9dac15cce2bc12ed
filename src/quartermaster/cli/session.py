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


class Session:
    """One run of `qm`."""

    def __init__(self, *, store_url: str, namespace: str, verbosity: int) -> None:
        self._option = store_url
        self._namespace = namespace
        self.verbosity = verbosity

    def override(self, *, store_url: str | None, namespace: str | None) -> None:
        """`qm get -n NAME` means the same as `qm -n NAME get`."""
        self._option = store_url or self._option
        self._namespace = namespace or self._namespace

    @cached_property
    def choice(self) -> Choice:
        return choose(self._option, os.environ)

    @property
    def namespace(self) -> str:
        return self._namespace or self.choice.namespace or DEFAULT_NAMESPACE

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        from quartermaster.stores import open_store

        store = await open_store(self.choice.store, manager=MANAGER)
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


def store_options(function: Callable[..., T]) -> Callable[..., T]:
    """`--store` and `-n` after the command as well as before it. The command receives `session`."""
    import functools

    @click.option("--store", "store_url", metavar="URL", help="The store to use; see `qm --help`.")
    @click.option("-n", "--namespace", metavar="NAME", help="The namespace.")
    @click.pass_obj
    @functools.wraps(function)
    def wrapped(session: Session, /, *, store_url: str | None, namespace: str | None, **options: Any) -> T:
        session.override(store_url=store_url, namespace=namespace)
        return function(session, **options)

    return wrapped
