"""What `qm doctor` asks: the host, the programs of each storage system, the agent, the store."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.cli import failures
from quartermaster.cli.output import format_document, parse_output
from quartermaster.cli.session import Session
from quartermaster.cli.tables import Writer
from quartermaster.host.places import device_root, state_directory
from quartermaster.host.preflight import Check, State, judge_host, probe_host
from quartermaster.host.tools import COMMON, Tool, registered
from quartermaster.support import clock
from quartermaster.support.errors import NotFoundError, QuartermasterError, UsageError

if TYPE_CHECKING:
    from quartermaster.host import DaemonStatus
    from quartermaster.operators.settings import HostSettings
    from quartermaster.stores import Store

ETCD = "etcd"
# Only a host on which systemd runs needs them, and it has them.
_SYSTEMD_ONLY = ("systemctl", "journalctl")
_COLOURS = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}


async def examine(session: Session, types: Sequence[str], *, asks_store: bool, output: str) -> int:
    form = parse_output(output)
    if form.form not in ("", "json", "yaml"):
        raise UsageError(f'cannot print the checks as "{output}"', hint="-o takes json or yaml")
    directory = state_directory()
    settings, unreadable = _settings(directory)
    checks = await _host_checks(directory, types, running=settings is not None)
    checks.append(unreadable or await _agent_check(directory, settings))
    if asks_store:
        checks += await _store_checks(session, settings)
    if form.form:
        click.echo(format_document(form, {"checks": msgspec.to_builtins(checks)}), nl=False)
    else:
        _show(checks)
    return failures.FAILED if any(check.state is State.FAIL for check in checks) else 0


def tools_by_user(types: Sequence[str]) -> dict[str, tuple[Tool, ...]]:
    """The programs that etcd and each storage system bring in, and under "" those that every host needs."""
    from quartermaster.backends.registry import backend_of, installed_types

    known = {tool.name for tool in COMMON}
    found: dict[str, tuple[Tool, ...]] = {"": tuple(tool for tool in COMMON if tool.name not in _SYSTEMD_ONLY)}
    for name in (ETCD, *sorted({*installed_types(), *types})):
        # Programs are named when the module is imported that starts them.
        if name == ETCD:
            importlib.import_module("quartermaster.backends.etcd.tool")
        else:
            backend_of(name)
        found[name] = tuple(tool for tool in registered() if tool.name not in known)
        known |= {tool.name for tool in found[name]}
    return found


def _settings(directory: Path) -> tuple[HostSettings | None, Check | None]:
    """What this host was told to be, if it was and that can be read."""
    from quartermaster.operators.settings import read_settings

    try:
        return read_settings(directory), None
    except QuartermasterError as error:
        return None, Check("settings", State.FAIL, error.message, error.hint)


async def _host_checks(directory: Path, types: Sequence[str], *, running: bool) -> list[Check]:
    tools = tools_by_user(types)
    from quartermaster.backends.etcd.tool import CLIENT_PORT, PEER_PORT
    from quartermaster.host import HostCommands
    from quartermaster.orchestration.joining.wire import PORT

    probe = await probe_host(HostCommands(), directory, (CLIENT_PORT, PEER_PORT, PORT))
    return list(judge_host(probe, tools=tools, needed=types, running=running))


async def _agent_check(directory: Path, settings: HostSettings | None) -> Check:
    if settings is None:
        return Check("agent", State.OK, "this host was not brought up", "`qm up` or `qm join` does that")
    from quartermaster.cli.hosting import AGENT_DAEMON
    from quartermaster.host import open_host

    try:
        status = await open_host(directory, device_root=device_root()).daemons.status(AGENT_DAEMON)
    except QuartermasterError as error:
        return Check("agent", State.FAIL, error.message, error.hint)
    return judge_agent(status, settings)


def judge_agent(status: DaemonStatus, settings: HostSettings) -> Check:
    up = "qm up --single" if settings.store else "qm up"  # the other one is refused
    if not status.running:
        message = f"the agent of {settings.name} does not run: {status.message or status.state}"
        return Check("agent", State.FAIL, message, f"`{up}` starts it again; its log says why it ended")
    runs = f"{settings.name} runs, process {status.pid}"
    if status.lasting:
        return Check("agent", State.OK, f"{runs}, and is started again by systemd after its end and after a boot")
    message = f"{runs}; nothing starts it again after its end or after a boot"
    fix = f"have `{up}` run at boot, for example by a line `@reboot {up}` of cron"
    return Check("agent", State.WARN, message, fix)


async def _store_checks(session: Session, settings: HostSettings | None) -> list[Check]:
    from quartermaster.resources.storage import StorageNode

    began = clock.monotonic()
    try:
        async with session.store(reads_only=True) as store:
            await store.list(StorageNode, limit=1)
            took_ms = (clock.monotonic() - began) * 1000
            checks = [Check("store", State.OK, f"{session.url_of(store)} answers in {took_ms:.0f} ms")]
            return checks if settings is None else [*checks, await _registered(store, settings)]
    except QuartermasterError as error:
        hint = error.hint or f"it was chosen by {session.choice.because}"
        return [Check("store", State.FAIL, error.message, hint)]


async def _registered(store: Store, settings: HostSettings) -> Check:
    from quartermaster.resources.orchestration import Host as HostObject

    try:
        host = await store.get(HostObject, settings.name, settings.namespace)
    except NotFoundError:
        message = f"{settings.name} is not registered in the namespace {settings.namespace}"
        return Check("host", State.FAIL, message, "is this the store of its cluster? `qm context show`")
    state = host.status.state or "Unseen"
    devices = host.status.inventory.devices if host.status.inventory is not None else ()
    free = sum(device.state == "Available" for device in devices)
    message = f"{settings.name} is {state}; {free} of {len(devices)} devices could be used"
    if state == "Ready":
        return Check("host", State.OK, message)
    return Check("host", State.WARN, message, "`qm get hosts`; is there a leader?")


def _show(checks: Sequence[Check]) -> None:
    writer = Writer(("CHECK", "RESULT", "FOUND", "FIX"))
    rows = [[check.what, str(check.state), " ".join(check.message.split()), check.fix] for check in checks]
    lines = writer.format(rows).splitlines()
    click.echo(lines[0])
    for check, line in zip(checks, lines[1:], strict=True):
        coloured = click.style(str(check.state), fg=_COLOURS[check.state])
        click.echo(line.replace(f" {check.state} ", f" {coloured} ", 1).rstrip())
