"""What `qm store` does."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace as changed

from quartermaster.cli.addressing import require_own
from quartermaster.cli.hosting import AGENT_DAEMON, save_context, start_agent, tell, this_host, wait_until_up
from quartermaster.cli.session import Session
from quartermaster.host.facts import addresses
from quartermaster.host.places import state_directory
from quartermaster.operators.settings import read_settings, write_settings
from quartermaster.orchestration.restoring import back_up, migrate, restore
from quartermaster.stores import open_store
from quartermaster.stores.objects.copying import Copied
from quartermaster.support.errors import AlreadyExistsError, UsageError

_UP_S = 60.0


async def write(session: Session, file: str, *, replace: bool) -> None:
    if not replace:
        _refuse_to_overwrite(Path(file))
    async with session.store(reads_only=True) as store:
        session.name_store(store)
        made = await back_up(store, Path(file))
    count = "1 object" if made.objects == 1 else f"{made.objects} objects"
    click.echo(f"{count} written to {file} ({_size(Path(file))}); it holds Secrets, keep it safe")


def _refuse_to_overwrite(file: Path) -> None:
    if file.exists():
        raise AlreadyExistsError(
            f"cannot write the backup to {file}: it is there already", hint="choose another name, or say --replace"
        )


async def put_back(session: Session, file: str, *, replace: bool) -> None:
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        done = await restore(store, Path(file), namespace, replace_all=replace)
    click.echo(f"restored the backup of {done.backup.header.time}: {_shown(done.copied)}")
    said = ["qm resume" if one == namespace else f"qm resume -n {one}" for one in done.observed]
    click.echo(f"nothing acts on it yet: look, then say {' and '.join(f'`{one}`' for one in said)}", err=True)


async def copy_to(session: Session, url: str) -> None:
    async with session.store() as source:
        session.name_store(source)
        target = await open_store(url, manager="qm")
        try:
            copied = await migrate(source, target, session.namespace(source))
            shown = target.url
        finally:
            await target.close()
    click.echo(f"migrated to {shown}: {_shown(copied)}")
    click.echo("the old store acts no more; name the new one with `qm context set`", err=True)


async def become_first(session: Session, given: tuple[str, ...]) -> None:
    """Every step can be repeated: cut off, the same command goes on."""
    from quartermaster.orchestration.joining.bootstrap import bootstrap

    directory = state_directory()
    settings = read_settings(directory)
    if settings is None or not settings.store:
        raise UsageError(
            "cannot migrate this host to an etcd of its own: it was not brought up with `qm up --single`",
            hint="to copy a store into another, name that one's URL",
        )
    machine = this_host(directory)
    await require_own(given, machine.commands)
    found = given or settings.addresses or await addresses(machine.commands)
    access = await bootstrap(directory, settings.name, found, machine=machine, namespace=settings.namespace)
    tell(f"etcd runs at {', '.join(access.endpoints)}")
    await machine.daemons.stop(AGENT_DAEMON)
    source, target = await open_store(settings.store, manager="qm"), await open_store(access.leader_url, manager="qm")
    try:
        session.name_store(source)
        copied = await migrate(source, target, settings.namespace)
    finally:
        await source.close()
        await target.close()
    joined = changed(settings, store="", leads=False, addresses=tuple(found))
    write_settings(directory, joined)
    context = save_context(settings.name, access.leader_url, settings.namespace)
    await start_agent(machine, directory)
    await wait_until_up(machine, access.leader_url, joined, _UP_S)
    click.echo(f"migrated to {access.leader_url.partition('?')[0]} (context {context}): {_shown(copied)}")


def _shown(copied: Copied) -> str:
    parts = [f"{copied.written} objects written"]
    parts += [f"{copied.unchanged} unchanged"] if copied.unchanged else []
    parts += [f"{copied.removed} removed"] if copied.removed else []
    parts += [f"{copied.kept} left as they are"] if copied.kept else []
    return ", ".join(parts)


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1000:.1f} kB"
