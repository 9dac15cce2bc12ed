"""What `qm version` finds out."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any, cast

import click

from quartermaster import __version__
from quartermaster.cli.output import json_text, parse_output, yaml_text
from quartermaster.cli.session import Session
from quartermaster.support.errors import ForbiddenError, QuartermasterError, UnauthorizedError, UsageError
from quartermaster.support.redaction import redact

if TYPE_CHECKING:
    from quartermaster.stores import Store


def show(session: Session, *, client_only: bool, output: str) -> int:
    form = parse_output(output).form
    if form not in ("", "yaml", "json"):
        raise UsageError(f'cannot print versions as "{output}"', hint="-o takes yaml and json")
    facts: dict[str, Any] = {"client": __version__, "python": platform.python_version()}
    problem = ""
    if not client_only:
        facts["store"], problem = session.run(lambda: _ask(session))
    if form:
        click.echo(json_text(facts) + "\n" if form == "json" else yaml_text(facts), nl=False)
    else:
        _print(facts)
    if problem:
        from quartermaster.cli import failures

        failures.say(problem)
    return 1 if problem else 0


async def _ask(session: Session) -> tuple[dict[str, Any], str]:
    choice = session.choice
    facts: dict[str, Any] = {"url": redact(choice.store), "because": choice.because, "reachable": False}
    try:
        async with session.store(reads_only=True) as store:
            facts["url"] = session.url_of(store)
            version = await _server_version(store, facts["url"])
            facts["reachable"] = True
            if version:
                facts["version"] = version
    except (UnauthorizedError, ForbiddenError) as error:
        return {**facts, "refused": True}, str(error)
    except QuartermasterError as error:
        return facts, str(error)
    return facts, ""


async def _server_version(store: Store, url: str) -> str:
    """The server's own word; a store that has no version is asked for something small, to see that it answers."""
    if not store.fences:
        import msgspec

        from quartermaster.stores.kubernetes import KubernetesStore
        from quartermaster.stores.kubernetes.request import Request

        transport = cast(KubernetesStore, store).transport
        body = await transport.send(Request("GET", "/version", "get", "version", repeatable=True))
        return f"Kubernetes {msgspec.json.decode(body).get('gitVersion', '')}"
    from quartermaster.resources import Namespace

    await store.list(Namespace, limit=1)
    if url.startswith("sqlite:"):
        import sqlite3

        return f"SQLite {sqlite3.sqlite_version}"
    return ""


def _print(facts: dict[str, Any]) -> None:
    click.echo(f"Client:     quartermaster {facts['client']}, Python {facts['python']}")
    if "store" in facts:
        store = facts["store"]
        silence = "refuses" if "refused" in store else "does not answer"
        answers = store.get("version", "answers") if store["reachable"] else silence
        click.echo(f"Store:      {store['url']} ({store['because']})")
        click.echo(f"Server:     {answers}")
