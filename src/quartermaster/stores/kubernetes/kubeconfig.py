"""Kubeconfig files as kubectl reads them: several merged, the first to name a thing wins, paths relative to their file.

Reading is apart from understanding: `read_kubeconfig` touches files, `connection_of` is pure.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import field

from quartermaster.stores.kubernetes.connection import Connection, ExecPlugin, Material, User
from quartermaster.stores.kubernetes.proxies import checked_proxy, proxy_from_environment
from quartermaster.support.errors import UsageError

PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"

Entry = TypeVar("Entry")


class _Extension(msgspec.Struct, frozen=True):
    name: str
    extension: Any = None


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: list[_Extension] = []


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] = []
    env: list[_Variable] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    as_user: str = field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


class _Found(msgspec.Struct, frozen=True):
    """An entry and the file that it came from."""

    entry: Any
    file: Path


class Kubeconfig(msgspec.Struct, frozen=True):
    """The merged files."""

    files: tuple[Path, ...]
    clusters: dict[str, _Found]
    users: dict[str, _Found]
    contexts: dict[str, _Found]
    current_context: str

    def __repr__(self) -> str:
        return f"Kubeconfig({self.origin})"

    @property
    def origin(self) -> str:
        return os.pathsep.join(map(str, self.files))


def kubeconfig_paths(explicit: Path | None = None, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files that count: the one given, else those of KUBECONFIG that are there, else ~/.kube/config."""
    if explicit is not None:
        return (explicit,)
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return tuple(path for path in named if path.exists()) or tuple(named[:1])
    return (Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config",)


def read_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Read and merge; every file must be there."""
    files = [(path, _parse(path, _read(path))) for path in paths]
    return Kubeconfig(
        files=tuple(paths),
        clusters=_merge((path, item.name, item.cluster) for path, file in files for item in file.clusters),
        users=_merge((path, item.name, item.user) for path, file in files for item in file.users),
        contexts=_merge((path, item.name, item.context) for path, file in files for item in file.contexts),
        current_context=next((file.current_context for _, file in files if file.current_context), ""),
    )


def connection_of(config: Kubeconfig, context: str = "", environment: Mapping[str, str] = os.environ) -> Connection:
    """The settings of a context, "" being the current one."""
    name = context or config.current_context
    if not name:
        raise UsageError(f"cannot choose a context: {config.origin} has no current-context", hint=_choices(config))
    if name not in config.contexts:
        raise UsageError(f'cannot find context "{name}" in {config.origin}', hint=_choices(config))
    chosen: _Context = config.contexts[name].entry
    found = config.clusters.get(chosen.cluster)
    if found is None:
        raise _missing(config, name, "cluster", chosen.cluster, config.clusters)
    cluster: _Cluster = found.entry
    where = f'cluster "{chosen.cluster}" in {found.file}'
    server = _checked_server(cluster.server, where)
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        raise UsageError(
            f"cannot use {where}: it has both a certificate authority and insecure-skip-tls-verify",
            hint="remove one of them",
        )
    return Connection(
        name=name,
        server=server,
        namespace=chosen.namespace or "default",
        authority=_material(
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            found.file,
            "certificate-authority",
            where,
        ),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=checked_proxy(cluster.proxy_url, where)
        if cluster.proxy_url
        else proxy_from_environment(server, environment),
        user=_user_of(config, name, chosen.user, cluster),
        origin=config.origin,
    )


def _user_of(config: Kubeconfig, context: str, name: str, cluster: _Cluster) -> User:
    if not name:
        return User()
    found = config.users.get(name)
    if found is None:
        raise _missing(config, context, "user", name, config.users)
    user: _User = found.entry
    where = f'user "{name}" in {found.file}'
    if user.auth_provider is not None:
        raise UsageError(
            f'cannot use {where}: auth-provider "{user.auth_provider.get("name", "")}" is not supported',
            hint="Kubernetes removed these in 1.26; your provider has an exec plugin instead",
        )
    certificate = _material(
        user.client_certificate_data, user.client_certificate, found.file, "client-certificate", where
    )
    key = _material(user.client_key_data, user.client_key, found.file, "client-key", where)
    if bool(certificate) != bool(key):
        raise UsageError(f"cannot use {where}: client-certificate and client-key need each other")
    return User(
        name=name,
        token=user.token,
        token_file=_beside(found.file, user.token_file),
        username=user.username,
        password=user.password,
        certificate=certificate,
        key=key,
        plugin=_plugin(user.exec, found.file, where, cluster) if user.exec else None,
        impersonation=tuple(_impersonation(user)),
    )


def _plugin(given: _Exec, file: Path, where: str, cluster: _Cluster) -> ExecPlugin:
    if given.api_version not in PLUGIN_VERSIONS:
        raise UsageError(
            f'cannot use {where}: exec apiVersion "{given.api_version}" is not supported',
            hint=f"use {' or '.join(PLUGIN_VERSIONS)}",
        )
    # As a shell: a name is looked up on the PATH, anything with a slash is a file beside the kubeconfig.
    command = _beside(file, given.command) if "/" in given.command else given.command
    return ExecPlugin(
        command=command,
        api_version=given.api_version,
        arguments=tuple(given.args),
        environment={variable.name: variable.value for variable in given.env},
        install_hint=given.install_hint.strip(),
        interactive=given.interactive_mode,
        cluster=_cluster_info(cluster, file) if given.provide_cluster_info else None,
    )


def _cluster_info(cluster: _Cluster, file: Path) -> dict[str, Any]:
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        authority = base64.b64encode(_read(Path(_beside(file, cluster.certificate_authority)))).decode()
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": cluster.proxy_url,
        "config": next((item.extension for item in cluster.extensions if item.name == _CLUSTER_EXTENSION), None),
    }
    return {name: value for name, value in info.items() if value}


def _impersonation(user: _User) -> Iterable[tuple[str, str]]:
    if user.as_user:
        yield "Impersonate-User", user.as_user
    if user.as_uid:
        yield "Impersonate-Uid", user.as_uid
    for group in user.as_groups:
        yield "Impersonate-Group", group
    for key, values in user.as_user_extra.items():
        for value in values:
            yield f"Impersonate-Extra-{key}", value


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"cannot read {path}: it is not there", hint="set KUBECONFIG, or choose another store with --store"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _parse(path: Path, content: bytes) -> _File:
    import yaml  # slow to import, and most commands look only whether there is a file

    try:
        document = yaml.load(content, Loader=yaml.CSafeLoader)
        return msgspec.convert(_without_nulls(document or {}), _File)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        # The mark's snippet could show a token: only what is wrong and where.
        raise UsageError(f"cannot parse kubeconfig {path}: {line}{error.problem}") from None
    except yaml.YAMLError:
        raise UsageError(f"cannot parse kubeconfig {path}: it is not YAML") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"cannot parse kubeconfig {path}: {error}") from None


def _without_nulls(value: Any) -> Any:
    """`token: null` is an unset token, as it is for kubectl."""
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value if child is not None]
    return value


def _merge(entries: Iterable[tuple[Path, str, Any]]) -> dict[str, _Found]:
    merged: dict[str, _Found] = {}
    for path, name, entry in entries:
        merged.setdefault(name, _Found(entry, path))
    return merged


def _checked_server(server: str, where: str) -> str:
    parts = urlsplit(server)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        if not (parts.hostname or "").isascii():
            (parts.hostname or "").encode("idna")
    except ValueError:  # of the port, or of a name that no resolver can be asked for
        usable = False
    if not usable:
        raise UsageError(f"cannot use {where}: its server is not an http or https URL")
    return server.rstrip("/")


def _material(data: str, path: str, file: Path, name: str, where: str) -> Material:
    if not data:
        return Material(path=_beside(file, path))
    try:
        return Material(data=base64.b64decode("".join(data.split()), validate=True))
    except (binascii.Error, ValueError):
        raise UsageError(f"cannot use {where}: {name}-data is not base64") from None


def _beside(file: Path, path: str) -> str:
    return str(file.parent / path) if path else ""


def _missing(config: Kubeconfig, context: str, what: str, name: str, there: Iterable[str]) -> UsageError:
    names = ", ".join(there) or "none"
    return UsageError(
        f'cannot use context "{context}": {what} "{name}" is not in {config.origin}', hint=f"{what}s that are: {names}"
    )


def _choices(config: Kubeconfig) -> str:
    return f"contexts that are there: {', '.join(config.contexts)}" if config.contexts else "it has no contexts at all"
