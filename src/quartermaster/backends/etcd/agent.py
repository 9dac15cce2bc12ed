"""The service agent that runs a member of etcd on its host, under TLS, as a daemon that outlives the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.etcd.member import LOCK, LOCK_S, LocalMember, MemberConfig
from quartermaster.backends.etcd.tool import DAEMON, PROGRAM
from quartermaster.host import Command, Host
from quartermaster.support.errors import HostError, InvalidError, QuartermasterError
from quartermaster.support.log import logger

AGENT = "etcd"
_VERSION_S = 10.0
_log = logger("backends.etcd")


class EtcdAgent:
    """See `ServiceAgent`. `state` is the state directory of the host."""

    name = AGENT

    def __init__(self, state: Path) -> None:
        self._local = LocalMember(state)

    def keeps(self, daemon: str) -> bool:
        return daemon == DAEMON

    async def initialize(self, context: AgentContext) -> None:
        """What does not start now is told by its assignment, which waits for this to succeed."""
        try:
            await start_member(self._local, context.machine)
        except QuartermasterError as error:
            _log.warning("the member of etcd on this host does not start", error=str(error))

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        config = _config(context.desired)
        if config.prepare:
            return {"member": config.member, "prepared": await _version(context.machine)}
        async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
            known = self._local.read()
            if known is not None and known.member != config.member:
                # A member that was removed while this host was away: its name and its data never come back.
                await context.report(f"setting {known.member} aside")
                await self._clear(context.machine, known)
            # A running member is left alone whatever has changed; its next start takes that up.
            if not (await context.machine.daemons.status(DAEMON)).running:
                self._require_all(config)
            if known != config:
                self._local.write(config)
            await context.machine.daemons.ensure(self._local.daemon(config))
        return {"member": config.member}

    async def destroy_local_service(self, context: AgentContext) -> None:
        async with context.machine.locks.hold(LOCK, timeout_s=LOCK_S):
            known = self._local.read()
            if known is not None:
                await self._clear(context.machine, known)

    def _require_all(self, config: MemberConfig) -> None:
        self._local.require_data(config)
        if not self._local.has_certificates:
            raise HostError(
                f"cannot start {config.member}: its certificates are not there yet",
                hint="the leader signs them; this is tried again",
            )

    async def _clear(self, machine: Host, known: MemberConfig) -> None:
        await machine.daemons.stop(DAEMON)
        self._local.set_aside(known)


async def start_member(local: LocalMember, machine: Host) -> bool:
    """Run this host's member, if it carries one; needs no store. Whether it was not running."""
    if local.read() is None or (await machine.daemons.status(DAEMON)).running:
        return False
    async with machine.locks.hold(LOCK, timeout_s=LOCK_S):
        config = local.read()
        if config is None or not local.has_certificates or (await machine.daemons.status(DAEMON)).running:
            return False
        local.require_data(config)
        await machine.daemons.ensure(local.daemon(config))
    return True


async def _version(machine: Host) -> str:
    """ToolMissingError, which names the package, where etcd is not installed."""
    shown = await machine.commands.run(
        Command((PROGRAM, "--version"), verb="ask etcd for its version", timeout_s=_VERSION_S, changes=False)
    )
    words = shown.text.split()
    return words[2] if len(words) > 2 else ""


def _config(desired: dict[str, Any]) -> MemberConfig:
    try:
        return msgspec.convert(desired, MemberConfig)
    except msgspec.ValidationError as error:
        raise InvalidError(f"cannot run a member of etcd: {error}", hint="the leader writes the assignment") from error
