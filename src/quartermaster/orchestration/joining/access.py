"""What a host keeps of its cluster: where the store is, and the files that open it.

Everything lies in the state directory with mode 0600, and is written whole or not at all: a host that loses power in
the middle of joining has joined or has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from quartermaster.backends.etcd.files import AUTHORITY_FILE, LEADER, certificate_file, key_file
from quartermaster.host.files import write_whole
from quartermaster.support.errors import InvalidError

HOST = "host"
ACCESS_FILE = "access.json"


class StoreAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How processes on this host reach the store."""

    directory: str
    host: str
    namespace: str = "default"
    joined: str = ""  # the token it came with: a part of the user that its certificate names
    endpoints: tuple[str, ...]  # host:port, of the members that serve

    @property
    def url(self) -> str:
        """With the rights of this host: it reads what agents need and writes what is its own."""
        return self._url(HOST)

    @property
    def leader_url(self) -> str:
        """With the rights of a leader; "" where this host may not lead. That may change while a process runs."""
        return self._url(LEADER) if self.may_lead else ""

    @property
    def may_lead(self) -> bool:
        tls = self.tls
        return certificate_file(tls, LEADER).exists() and key_file(tls, LEADER).exists()

    @property
    def tls(self) -> Path:
        return Path(self.directory) / "tls"

    def _url(self, name: str) -> str:
        tls = self.tls
        files = {
            "ca": tls / AUTHORITY_FILE,
            "cert": certificate_file(tls, name),
            "key": key_file(tls, name),
            "members": Path(self.directory) / ACCESS_FILE,
        }
        query = "&".join(f"{key}={quote(str(path), safe='/')}" for key, path in files.items())
        return f"etcds://{','.join(self.endpoints)}/quartermaster?{query}&sync=true"


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    namespace: str = "default"
    joined: str = ""
    endpoints: tuple[str, ...]


def read_access(directory: Path) -> StoreAccess | None:
    """What this host knows of its cluster; None while it belongs to none."""
    path = directory / ACCESS_FILE
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"cannot read {path}: {error}", hint="mend it, or remove it and join again with a new token"
        ) from error
    return StoreAccess(
        directory=str(directory),
        host=saved.host,
        namespace=saved.namespace,
        joined=saved.joined,
        endpoints=saved.endpoints,
    )


def write_access(access: StoreAccess) -> StoreAccess:
    directory = Path(access.directory)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    saved = _Saved(host=access.host, namespace=access.namespace, joined=access.joined, endpoints=access.endpoints)
    write_whole(directory / ACCESS_FILE, msgspec.json.format(msgspec.json.encode(saved), indent=2) + b"\n")
    return access


def with_endpoints(access: StoreAccess, endpoints: Sequence[str]) -> StoreAccess:
    """The same, with the members that serve now; written where they differ."""
    if not endpoints or tuple(endpoints) == access.endpoints:
        return access
    return write_access(msgspec.structs.replace(access, endpoints=tuple(endpoints)))
