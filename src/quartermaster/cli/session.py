"""What all commands share: the chosen store, the namespace, and the loop that runs them.

A command that writes names the store on standard error, so that nobody writes to a production cluster by accident.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quartermaster.cli.contexts import Choice, choose, embedded_path

if TYPE_CHECKING:
    from quartermaster.stores import Store

T = TypeVar("T")
MANAGER = "qm"
# A person waits: what does not answer within this is told to be away. Programs that run for days wait longer.
PATIENCE_S = 8.0


class Session:
    """One run of `qm`."""

    def __init__(self, *, store_url: str, namespace: str, verbosity: int, silent: bool = False) -> None:
        self.given_store = store_url
        self.given_namespace = namespace if silent else checked_namespace(namespace)
        self.verbosity = verbosity
        self.silent = silent  # while a shell completes, any word is in the way
        self._absent = False

    def override(self, *, store_url: str | None, namespace: str | None, verbosity: int = 0) -> None:
        """`qm get -n NAME` means the same as `qm -n NAME get`."""
        self.given_store = store_url or self.given_store
        self.given_namespace = checked_namespace(namespace or "") or self.given_namespace
        self.verbosity += verbosity

    @cached_property
    def choice(self) -> Choice:
        return choose(self.given_store, os.environ)

    def namespace(self, store: Store) -> str:
        """The one that was given, else the context's own, else that of the kubeconfig's context, else "default"."""
        from quartermaster.resources.names import DEFAULT_NAMESPACE

        own: str = getattr(store, "namespace", "")
        return self.given_namespace or self.choice.namespace or own or DEFAULT_NAMESPACE

    @asynccontextmanager
    async def store(self, *, manager: str = MANAGER, reads_only: bool = False) -> AsyncIterator[Store]:
        """The chosen store. One who only reads makes no embedded file: until there is one, it is as good as empty."""
        from quartermaster.stores import open_store

        url = self.choice.store
        self._absent = reads_only and _is_absent(url)
        if self._absent and not self.silent:
            click.echo(f"note: {url} does not exist yet", err=True)
        store = await open_store("memory:" if self._absent else url, manager=manager, patience_s=PATIENCE_S)
        if _sends_password_in_clear(store.url) and not self.silent:
            text = "warning: the password goes to etcd unencrypted; etcds:// uses TLS"
            click.echo(click.style(text, fg="yellow"), err=True)
        try:
            yield store
        finally:
            await store.close()

    def url_of(self, store: Store) -> str:
        """The store's own word, but for an empty one that stands for a file that is not there."""
        return self.choice.store if self._absent else store.url

    def name_store(self, store: Store) -> None:
        """Said by every command that writes."""
        click.echo(click.style(f"store: {self.url_of(store)} ({self.choice.because})", dim=True), err=True)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, resident: bool = False) -> T:
        """Run a command's coroutine; Ctrl-C cancels it and lets it clean up.

        `resident` is for one that stays and serves many objects: it gets the loop that costs least per object.
        """
        import asyncio

        from quartermaster.support import loop

        if self.verbosity:
            from quartermaster.support import log

            log.configure(verbosity=self.verbosity)
        return loop.run(work()) if resident else asyncio.run(work())


def checked_namespace(name: str) -> str:
    """The name, if it is one that a namespace can have: else nothing is asked of a store."""
    if name:
        from quartermaster.resources.names import check_dns_label
        from quartermaster.support.errors import UsageError

        if wrong := check_dns_label(name):
            raise UsageError(f'cannot use the namespace "{name}": its name {wrong}')
    return name


def _is_absent(url: str) -> bool:
    """Whether the URL names an embedded file that is not there and would be made; the rest is left to the store."""
    scheme, _, rest = url.partition(":")
    if scheme != "sqlite" or not rest:
        return False
    path = Path(rest).expanduser()
    try:
        path.lstat()
    except FileNotFoundError:
        return path.parent.is_dir() or path == embedded_path(os.environ)
    except OSError:
        pass
    return False


def _sends_password_in_clear(url: str) -> bool:
    """A store's URL names its user and never the password; etcd has no users without one."""
    scheme, _, rest = url.partition("://")
    return scheme == "etcd" and "@" in rest.partition("/")[0]
