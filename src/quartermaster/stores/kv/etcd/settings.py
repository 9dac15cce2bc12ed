"""Where etcd is and how to get in, from a URL and the environment.

    etcd://host1:2379,host2:2379/prefix
    etcds://user@host1,host2/prefix?ca=ca.crt&cert=client.crt&key=client.key&server-name=etcd.example&timeout=30

`etcds` is TLS. The path is put before every key. What should not stand in a command line comes from QM_ETCD_PASSWORD
or, better, from the file that QM_ETCD_PASSWORD_FILE names; QM_ETCD_CA, QM_ETCD_CERT, QM_ETCD_KEY and
QM_ETCD_SERVER_NAME stand in for the parameters that a URL does not have. With `sync=true` the members that serve are
asked of etcd itself, so that a connection outlives the replacement of all that the URL names; `members=FILE` names a
JSON file whose "endpoints" take the place of those in the URL, for a URL that is kept longer than the members live.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from quartermaster.support.errors import UsageError

DEFAULT_PORT = "2379"
DEFAULT_PREFIX = "/quartermaster"
DEADLINE_S = 30.0
EXAMPLE = "write it as etcd://host1:2379,host2:2379/prefix, or etcds:// for TLS"

_TLS_PARAMETERS = {
    "ca": "QM_ETCD_CA",
    "cert": "QM_ETCD_CERT",
    "key": "QM_ETCD_KEY",
    "server-name": "QM_ETCD_SERVER_NAME",
}
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PARAMETERS = (*_TLS_PARAMETERS, "timeout", "sync", "members")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a connection needs. The certificates are paths of PEM files."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    tls: bool = False
    authority: str = ""  # "": what the machine trusts
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    user: str = ""
    password: str = ""
    deadline_s: float = DEADLINE_S  # how long a call looks for a member that answers
    sync: bool = False  # follow etcd's own list of members
    members: str = ""  # the path of a file that lists them, too

    @property
    def url(self) -> str:
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        return f"{'etcds' if self.tls else 'etcd'}://{user}{','.join(self.endpoints)}{self.prefix}"

    def __repr__(self) -> str:
        return f"Settings({self.url})"


def parse(url: str, environment: Mapping[str, str], *, deadline_s: float = DEADLINE_S) -> Settings:
    """The settings that a URL and the environment make; UsageError says what is wrong, without the password."""
    scheme, separator, rest = url.partition("://")
    if scheme not in ("etcd", "etcds") or not separator:
        raise UsageError("cannot use the etcd URL: it does not start with etcd:// or etcds://", hint=EXAMPLE)
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    user, _, password = (unquote(part) for part in credentials.partition(":"))
    parameters = _parameters(query)
    tls = _tls_parameters(parameters, environment) if scheme == "etcds" else {}
    if misplaced := sorted(parameters.keys() & _TLS_PARAMETERS) if scheme == "etcd" else []:
        raise UsageError(f"cannot use the etcd URL: {misplaced[0]} is for TLS", hint="use the scheme etcds")
    if user and not password:
        password = _password(environment, user)
    listed = listed_members(parameters.get("members", ""))
    return Settings(
        endpoints=listed or tuple(_endpoint(host) for host in hosts.split(",")),
        prefix=f"/{unquote(path).strip('/')}" if path.strip("/") else DEFAULT_PREFIX,
        tls=scheme == "etcds",
        authority=tls.get("ca", ""),
        certificate=tls.get("cert", ""),
        key=tls.get("key", ""),
        server_name=tls.get("server-name", ""),
        user=user,
        password=password,
        deadline_s=_timeout_s(parameters["timeout"]) if "timeout" in parameters else deadline_s,
        sync=_truth(parameters.get("sync", "false")),
        members=parameters.get("members", ""),
    )


class _Listed(msgspec.Struct, frozen=True):
    endpoints: tuple[str, ...] = ()


def listed_members(path: str) -> tuple[str, ...]:
    """The endpoints in such a file; none where it is not there or cannot be read: the URL has some as well."""
    if not path:
        return ()
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Listed).endpoints
    except (OSError, msgspec.DecodeError):
        return ()


def read_file(path: str, purpose: str) -> bytes | None:
    """A file that a setting names; None where it names none."""
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {purpose} {path}: {error.strerror}") from error


def _endpoint(host: str) -> str:
    name, separator, port = host.rpartition(":")
    if host.endswith("]") or not separator:
        name, port = host, DEFAULT_PORT
    if not _is_host(name) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"cannot use the etcd URL: {host or 'nothing'!r} is not an address", hint=EXAMPLE)
    return f"{name}:{port}"


def _is_host(name: str) -> bool:
    """A name, an IPv4 address, or an IPv6 address in brackets."""
    if not name.startswith("["):
        return _HOST.fullmatch(name) is not None
    try:
        IPv6Address(name[1:-1])
    except ValueError:
        return False
    return name.endswith("]")


def _parameters(query: str) -> dict[str, str]:
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    for name in parameters:
        if name not in _PARAMETERS:
            near = get_close_matches(name, _PARAMETERS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_PARAMETERS)}"
            raise UsageError(f"cannot use the etcd URL: it has no parameter {name!r}", hint=hint)
    return parameters


def _tls_parameters(parameters: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: parameters.get(name) or environment.get(other, "") for name, other in _TLS_PARAMETERS.items()}
    if bool(found["cert"]) != bool(found["key"]):
        raise UsageError("cannot use the etcd URL: a client certificate needs cert and key", hint="give both")
    return found


def _password(environment: Mapping[str, str], user: str) -> str:
    content = read_file(environment.get("QM_ETCD_PASSWORD_FILE", ""), "the password of etcd from")
    password = content.decode().rstrip("\r\n") if content is not None else environment.get("QM_ETCD_PASSWORD", "")
    if not password:
        hint = "set QM_ETCD_PASSWORD_FILE or QM_ETCD_PASSWORD"
        raise UsageError(f"cannot use the etcd URL: there is no password for the user {user}", hint=hint)
    return password


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"cannot use the etcd URL: sync {text!r} is neither true nor false")
    return text == "true"


def _timeout_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise UsageError(f"cannot use the etcd URL: timeout {text!r} is not a number of seconds up to 3600")
    return seconds
