"""What a shell offers for the word under the cursor: kinds, names of objects, namespaces.

Names come from the store, within a second or not at all: a shell that hangs at the Tab key, or prints an error there,
is worse than one that offers nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from quartermaster.support.deadlines import within

if TYPE_CHECKING:
    from quartermaster.cli.session import Session
    from quartermaster.resources import Object
    from quartermaster.stores import Store

TIMEOUT_S = 0.8
LIMIT = 200


def complete_targets(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The first word is a kind, those after it names; after a slash it is a name at once."""
    words: Sequence[str] = context.params.get("words") or ()
    kind, slash, start = incomplete.rpartition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(context, kind, start)]
    if words and "/" not in words[0]:
        return [name for name in _names(context, words[0], incomplete) if name not in words[1:]]
    before, comma, start = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in kind_words() if word.startswith(start)]


def complete_kinds(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [word for word in kind_words() if word.startswith(incomplete)]


def complete_namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Namespaces that are there as objects, and those that hold storage nodes: our own stores need no Namespace."""

    async def work(store: Store, _namespace: str) -> list[str]:
        from quartermaster.resources import Namespace, StorageNode
        from quartermaster.resources.names import DEFAULT_NAMESPACE

        page = await store.list(Namespace, limit=LIMIT)
        nodes = await store.list(StorageNode, limit=LIMIT)
        found = [obj.metadata.name for obj in page.items] + [obj.metadata.namespace for obj in nodes.items]
        return sorted({DEFAULT_NAMESPACE, *found})

    return [name for name in _ask(context, work) if name.startswith(incomplete)]


def complete_outputs(forms: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in (form.partition("TEMPLATE")[0] for form in forms) if word.startswith(incomplete)]

    return complete


def complete_contexts(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    import os

    from quartermaster.cli.contexts import contexts_path, load_contexts

    with suppress(Exception):
        saved = load_contexts(contexts_path(os.environ))
        return [context.name for context in saved.contexts if context.name.startswith(incomplete)]
    return []


def complete_claims(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [] if "/" in incomplete else _names(context, "persistentvolumeclaims", incomplete)


def complete_statuses(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(context, "storagestatuses", incomplete)


def complete_nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _names(context, "storagenodes", incomplete)


def kind_words() -> list[str]:
    from quartermaster.resources import all_kinds, kind_of

    return ["all", *(kind_of(kind).plural for kind in all_kinds())]


def _names(context: click.Context, word: str, start: str) -> list[str]:
    async def work(store: Store, namespace: str) -> list[str]:
        from quartermaster.resources import find, kind_of

        kind: type[Object] = find(word)
        page = await store.list(kind, namespace if kind_of(kind).namespaced else None, limit=LIMIT)
        return [obj.metadata.name for obj in page.items if obj.metadata.name.startswith(start)]

    return _ask(context, work)


def _ask(context: click.Context, work: Callable[[Store, str], Awaitable[list[str]]]) -> list[str]:
    """Ask the store that the words typed so far choose; whatever goes wrong, there is nothing to offer."""
    import asyncio

    session = _session(context)

    async def ask() -> list[str]:
        async with within(TIMEOUT_S), session.store() as store:
            return await work(store, session.namespace(store))

    with suppress(Exception):
        if _is_there(session.choice.store):
            return asyncio.run(ask())
    return []


def _session(context: click.Context) -> Session:
    """The options stand before or after the command; the callbacks that read them do not run while completing."""
    from quartermaster.cli.session import Session

    given: dict[str, Any] = {}
    link: click.Context | None = context
    while link is not None:
        given = {**{name: value for name, value in link.params.items() if value}, **given}
        link = link.parent
    url = given.get("store_url") or given.get("store") or ""
    return Session(store_url=url, namespace=given.get("namespace") or "", verbosity=0, silent=True)


def _is_there(url: str) -> bool:
    """Completing must not make an embedded store."""
    import os

    scheme, _, path = url.partition(":")
    return scheme != "sqlite" or os.path.exists(os.path.expanduser(path))
