"""Exec plugins: a program of the cloud's or the company's prints a token or a certificate for us."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from quartermaster.stores.kubernetes.connection import ExecPlugin, User
from quartermaster.support.clock import parse_timestamp
from quartermaster.support.errors import UnauthorizedError
from quartermaster.support.redaction import redact

_TIMEOUT_S = 60.0
_INTERACTIVE_TIMEOUT_S = 300.0  # a person may be typing
_SHOWN_CHARACTERS = 300


class Issued(msgspec.Struct, frozen=True, rename="camel"):
    """What a plugin printed; `expires_at` in seconds since 1970, 0 for never."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""

    @property
    def expires_at(self) -> float:
        return parse_timestamp(self.expiration_timestamp) if self.expiration_timestamp else 0.0

    def __repr__(self) -> str:
        return f"Issued(until {self.expiration_timestamp or 'it is refused'})"


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: Issued | None = None


async def run_plugin(user: User, plugin: ExecPlugin) -> Issued:
    """Run the program once and read what it prints."""
    interactive = _is_interactive(user, plugin)
    spec = {"interactive": interactive, **({"cluster": plugin.cluster} if plugin.cluster is not None else {})}
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.arguments,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # Somebody at a terminal has to see the question.
            stderr=None if interactive else asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise _failed(user, plugin, error.strerror or "it cannot be started", plugin.install_hint) from error
    try:
        timeout_s = _INTERACTIVE_TIMEOUT_S if interactive else _TIMEOUT_S
        output, errors = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        raise _failed(user, plugin, f"it did not end within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = str(redact((errors or b"").decode(errors="replace").strip()))[-_SHOWN_CHARACTERS:]
        raise _failed(user, plugin, f"it ended with code {process.returncode}" + (f": {said}" if said else ""))
    return _read(user, plugin, output)


def _read(user: User, plugin: ExecPlugin, output: bytes) -> Issued:
    try:
        credential = msgspec.json.decode(output, type=_Credential)
        status = credential.status
        if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
            raise _failed(
                user, plugin, f"it printed {credential.kind} {credential.api_version}, wanted {plugin.api_version}"
            )
        if status is None or not (status.token or status.client_certificate_data):
            raise _failed(user, plugin, "it printed neither a token nor a certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise _failed(user, plugin, "it printed a certificate without its key, or a key alone")
        _ = status.expires_at
    except (msgspec.MsgspecError, ValueError) as error:
        # The output itself may hold a token: it is not shown.
        raise _failed(user, plugin, "what it printed is not an ExecCredential") from error
    return status


def _is_interactive(user: User, plugin: ExecPlugin) -> bool:
    if plugin.interactive == "Never":
        return False
    terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if plugin.interactive == "Always" and not terminal:
        raise _failed(user, plugin, "it wants to ask a person and there is no terminal")
    return terminal


def _failed(user: User, plugin: ExecPlugin, cause: str, hint: str = "") -> UnauthorizedError:
    # Arguments may hold secrets: the command's name alone is shown.
    return UnauthorizedError(
        f'cannot get credentials for user "{user.name}": {plugin.command}: {cause}',
        hint=hint or "run `kubectl auth whoami` to see whether the plugin works there",
    )
