"""What `qm connector` does: JSON in, JSON out, and an exit code for each kind of failure."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from quartermaster.cli import ending, failures
from quartermaster.connectors import ConnectionInfo
from quartermaster.connectors.connector import Connector, Inventory, Listed, open_connector
from quartermaster.connectors.errors import (
    AttachmentConflictError,
    ConnectionDataError,
    IdentityMismatchError,
    NotAttachedError,
    UnreachableError,
    UnsupportedDriverError,
    VolumeBusyError,
)
from quartermaster.connectors.registry import require_clients
from quartermaster.support.errors import (
    DeadlineError,
    InvalidError,
    MountBusyError,
    QuartermasterError,
    UsageError,
)
from quartermaster.support.redaction import redact

_CODES: tuple[tuple[tuple[type[QuartermasterError], ...], int], ...] = (
    ((UsageError,), failures.WRONG_USE),
    ((ConnectionDataError, UnsupportedDriverError), 3),
    ((NotAttachedError,), 4),
    ((VolumeBusyError, MountBusyError, AttachmentConflictError), 5),
    ((DeadlineError, UnreachableError), 6),
    ((IdentityMismatchError,), 7),
)


class Choice(msgspec.Struct, frozen=True):
    """The options that choose the connector."""

    timeout: float
    multipath: bool
    clients: tuple[str, ...]
    directory: str
    do_local_attach: bool = True


async def connect_and_show(choice: Choice, file: str) -> int:
    async def work(connector: Connector) -> Any:
        return await connector.connect(_read(file))

    return await _answer(choice, "connecting the volume", work)


async def disconnect_and_show(choice: Choice, file: str, *, force: bool) -> int:
    async def work(connector: Connector) -> Any:
        return {"path": await connector.disconnect(_read(file), force=force)}

    return await _answer(choice, "disconnecting the volume", work)


async def extend_and_show(choice: Choice, file: str, *, mounted: str) -> int:
    async def work(connector: Connector) -> Any:
        return {"size": await connector.extend(_read(file), mounted=_absolute(mounted))}

    return await _answer(choice, "looking for the new size", work)


async def mount_and_show(choice: Choice, volume: str, target: str, *, key_file: str, **wanted: Any) -> int:
    async def work(connector: Connector) -> Any:
        key = _read_key(key_file) if key_file else b""
        return await connector.mount(volume, _absolute(target), key=key, **wanted)

    return await _answer(choice, "mounting the volume", work)


async def unmount_and_show(choice: Choice, volume: str, target: str, *, force: bool) -> int:
    async def work(connector: Connector) -> Any:
        return {"unmounted": await connector.unmount(volume, _absolute(target), force=force)}

    return await _answer(choice, "unmounting the volume", work)


async def show_statistics(choice: Choice, volume: str, target: str) -> int:
    async def work(connector: Connector) -> Any:
        return await connector.statistics(volume, _absolute(target))

    return await _answer(choice, "looking at the volume", work)


async def show_path(choice: Choice, volume: str) -> int:
    async def work(connector: Connector) -> Any:
        return await connector.find(volume)

    return await _answer(choice, "looking for the volume", work)


async def show_properties(choice: Choice) -> int:
    async def work(connector: Connector) -> Any:
        return (await connector.properties()).to_map()

    return await _answer(choice, "looking at this host", work)


async def recover_and_show(choice: Choice) -> int:
    resisted = False

    async def work(connector: Connector) -> Any:
        nonlocal resisted
        done = await connector.recover()
        resisted = any(one.problem for one in done)
        return {"recovered": msgspec.to_builtins(done)}

    return await _answer(choice, "taking back what was begun", work) or (failures.FAILED if resisted else 0)


async def show_list(choice: Choice, *, own: bool, output: str) -> int:
    if output not in ("", "json", "yaml"):
        raise UsageError(f'cannot print as "{output}"', hint="-o takes json or yaml")

    async def work(connector: Connector) -> Any:
        return await connector.list(foreign=not own)

    return await _answer(
        choice, "looking at this host", work, show=_table if not output else _yaml if output == "yaml" else _json
    )


async def _answer(
    choice: Choice,
    what: str,
    work: Callable[[Connector], Awaitable[Any]],
    *,
    show: Callable[[Any], str] | None = None,
) -> int:
    from quartermaster.cli.progress import Status

    try:
        with Status(what) as status:
            async with _saying(status), _open(choice) as connector:
                # Only the work itself is cancelled: whatever ends after it, a signal comes too late for.
                with ending.cancelling():
                    answer = await work(connector)
    except QuartermasterError as error:
        show_failure(error)
        failures.say(failures.sentence(error))
        return exit_code(error)
    except asyncio.CancelledError as error:
        if not ending.heard():
            raise
        show_failure(error)
        return 128 + ending.heard()
    click.echo((show or _json)(answer), nl=False)
    return 0


def show_failure(error: BaseException) -> None:
    """As JSON, of which the reason is for programs."""
    described: dict[str, Any] = {"reason": "Internal", "message": f"{type(error).__name__}: {error}"}
    if isinstance(error, QuartermasterError):
        described = _described(error)
    elif isinstance(error, click.ClickException):
        described = {"reason": UsageError.reason, "message": error.format_message()}
    elif isinstance(error, click.Abort | KeyboardInterrupt | asyncio.CancelledError):
        described = {"reason": "Interrupted", "message": "it was ended before it was done"}
    whole = {"reason": "", "message": "", "hint": "", "problems": [], **described}
    # What could not be taken back stands in the notes.
    message = "; ".join([whole["message"], *getattr(error, "__notes__", ())])
    click.echo(_json({"error": {**whole, "message": redact(message)}}), nl=False)


def exit_code(error: QuartermasterError) -> int:
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), failures.FAILED)


def _open(choice: Choice) -> Connector:
    clients = {}
    for given in choice.clients:
        type_, equals, client = given.partition("=")
        if not equals or not client:
            raise UsageError(f'cannot use the client "{given}"', hint="for example --client ISCSI=userspace")
        clients[type_] = client
    try:
        require_clients(clients)
    except UnsupportedDriverError as error:
        raise UsageError(error.message, hint=error.hint) from error
    return open_connector(
        multipath=choice.multipath,
        do_local_attach=choice.do_local_attach,
        clients=clients,
        directory=Path(choice.directory).resolve() if choice.directory else None,
        timeout_s=choice.timeout,
    )


def _read(file: str) -> ConnectionInfo:
    if file == "-":
        if sys.stdin.isatty():
            click.echo("reading the connection information from standard input; Ctrl-D ends it", err=True)
        return ConnectionInfo.from_json(_read_input())
    try:
        return ConnectionInfo.from_json(Path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


def _read_input() -> bytes:
    """Nothing is begun yet, and whoever is to write it may never come: a signal ends the waiting."""
    with ending.raising():
        return sys.stdin.buffer.read()


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def _read_key(file: str) -> bytes:
    try:
        key = _read_input() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the key {file}: {error.strerror}") from error
    if not key:
        raise UsageError(f"cannot use the key {file}: it is empty")
    return key


def _described(error: QuartermasterError) -> dict[str, Any]:
    problems = error.problems if isinstance(error, InvalidError) else ()
    return {
        "reason": error.reason,
        "message": redact(error.message),
        "hint": redact(error.hint),
        "problems": [{"path": each.path, "message": each.message, "fix": each.fix} for each in problems],
    }


def _json(answer: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"


def _yaml(answer: Any) -> str:
    from quartermaster.cli.output import yaml_text

    return yaml_text(msgspec.to_builtins(answer))


def _table(answer: Inventory) -> str:
    from quartermaster.cli.tables import Writer

    if not answer.attachments and not answer.foreign:
        return "No volumes are attached to this host.\n"
    rows = [
        (
            one.volume_id or "-",
            one.driver_volume_type or "-",
            _state(one),
            one.device or "-",
            one.path,
        )
        for one in answer.attachments
    ]
    rows += [(one.name, one.driver, f"not ours ({one.kind})", "-", one.path) for one in answer.foreign]
    return Writer(("VOLUME", "DRIVER", "STATE", "DEVICE", "PATH")).format(rows)


def _state(one: Listed) -> str:
    if one.state != "connected":
        return one.state
    if not one.present:
        return "missing"
    return "unreachable" if one.problem else one.state


@asynccontextmanager
async def _saying(status: Any) -> AsyncIterator[None]:
    """Says on what the command waits, from the second second on."""
    from quartermaster.support.tasks import TaskGroup

    async def say() -> None:
        while True:
            await asyncio.sleep(1.0)
            status.show("the host is at work")

    async with TaskGroup() as group:
        group.start(say())
        yield
        group.cancel()
