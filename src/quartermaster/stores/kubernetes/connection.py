"""Where an API server is and who we are there: settings only, read once, from a kubeconfig or from inside a pod.

What these structs hold may be secret, so their text never shows more than names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from quartermaster.support.errors import UsageError

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Material(msgspec.Struct, frozen=True):
    """A certificate or key: its content, or the file that holds it and may be renewed while we run."""

    data: bytes = b""
    path: str = ""

    def __bool__(self) -> bool:
        return bool(self.data or self.path)

    def __repr__(self) -> str:
        return f"Material({self.path or f'{len(self.data)} bytes'})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("", self.path or len(self.data))]


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints credentials."""

    command: str
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    install_hint: str = ""
    interactive: str = "IfAvailable"  # Never | IfAvailable | Always
    cluster: dict[str, Any] | None = None  # what the program wants to know of the cluster, if anything

    def __repr__(self) -> str:
        return f"ExecPlugin({self.command})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("", self.command)]


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are. Several ways may be set at once; a token file counts more than a token, as for kubectl."""

    name: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    certificate: Material = Material()
    key: Material = Material()
    plugin: ExecPlugin | None = None
    impersonation: tuple[tuple[str, str], ...] = ()  # headers

    def __repr__(self) -> str:
        return f"User({self.name})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("", self.name)]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """All that is needed to talk to one API server."""

    name: str  # the context
    server: str  # without a slash at the end
    namespace: str = "default"
    authority: Material = Material()
    verify: bool = True
    server_name: str = ""  # what the certificate must be for, when it is not the host of `server`
    proxy: str = ""
    user: User = User()
    origin: str = ""  # the files it was read from, for error texts

    @property
    def address(self) -> str:
        """The server without secrets: scheme, host, port and path."""
        parts = urlsplit(self.server)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    def __repr__(self) -> str:
        return f"Connection({self.name} {self.address})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("", f"{self.name} {self.address}")]


def runs_in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> bool:
    """Whether this process is in a pod that has a service account."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (directory / "token").is_file()


def in_cluster_connection(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Connection:
    """The API server of the cluster that this pod runs in, as its service account."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise UsageError(
            "cannot use the service account: this process does not run in a pod",
            hint="KUBERNETES_SERVICE_HOST is not set; choose a store with --store or a kubeconfig",
        )
    for name in ("token", "ca.crt"):
        if not (directory / name).is_file():
            raise UsageError(
                f"cannot use the service account: {directory / name} is not there",
                hint="the pod has automountServiceAccountToken: false",
            )
    namespace_file = directory / "namespace"
    namespace = namespace_file.read_text().strip() if namespace_file.is_file() else ""
    return Connection(
        name=IN_CLUSTER,
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace or "default",
        authority=Material(path=str(directory / "ca.crt")),
        user=User(name="service account", token_file=str(directory / "token")),
        origin=str(directory),
    )
