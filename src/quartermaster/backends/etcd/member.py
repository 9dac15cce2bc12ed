"""One member of etcd on one host: what it was told, and the command that runs it.

The record of it lies beside its data, because a host must be able to start its member before the store, which is that
member and its peers, can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from quartermaster.backends.etcd.files import PEER, SERVER, tls_files
from quartermaster.backends.etcd.tool import CLIENT_PORT, DAEMON, PEER_PORT, PROGRAM
from quartermaster.host import Daemon
from quartermaster.host.files import remove, write_whole
from quartermaster.support import clock
from quartermaster.support.errors import HostError
from quartermaster.support.files import sync_directory

DIRECTORY = "etcd"  # in the state directory of a host
RECORD_FILE = "member.json"
REMOVED = "removed"
# etcd refuses writes beyond this and raises an alarm; the manager keeps the database far below it.
QUOTA_BYTES = 2 << 30
_STOP_S = 20.0
# Whoever starts, stops or replaces the member of this host holds this lock meanwhile.
LOCK = "etcd-member"
LOCK_S = 2 * _STOP_S
DATA_GONE = "MemberDataGone"  # the reason by which the leader knows that a member does not come back


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a host's assignment says of its member; the same is kept in its record."""

    member: str  # its name, never given twice
    prepare: bool = False  # see whether a member could run here, and start none
    address: str  # on which it listens
    client_port: int = CLIENT_PORT
    peer_port: int = PEER_PORT
    cluster: str = ""  # the token that tells one cluster from another
    initial: str = ""  # the members when it joined, as etcd writes them
    new_cluster: bool = False  # only while the first host makes a cluster of itself
    begun: bool = False  # it has run as a member: without its data it is not started
    quota: int = QUOTA_BYTES
    flags: tuple[str, ...] = ()

    @property
    def client_url(self) -> str:
        return f"https://{endpoint(self.address, self.client_port)}"

    @property
    def peer_url(self) -> str:
        return f"https://{endpoint(self.address, self.peer_port)}"


def endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def initial_cluster(members: Sequence[tuple[str, str]]) -> str:
    """Names with peer URLs, as `--initial-cluster` takes them."""
    return ",".join(f"{name}={url}" for name, url in members)


class LocalMember:
    """The files of this host's member below the state directory."""

    def __init__(self, state: Path) -> None:
        self._directory = state / DIRECTORY
        self._tls = state / "tls"

    @property
    def has_certificates(self) -> bool:
        return tls_files(self._tls, SERVER).complete and tls_files(self._tls, PEER).complete

    def read(self) -> MemberConfig | None:
        """What runs here, or should; None where there is no member."""
        try:
            return msgspec.json.decode((self._directory / RECORD_FILE).read_bytes(), type=MemberConfig)
        except FileNotFoundError:
            return None

    def has_data(self, config: MemberConfig) -> bool:
        """Whether it has written anything here: etcd makes its log before it speaks to anybody."""
        log = self._data(config) / "member" / "wal"
        return log.is_dir() and any(log.iterdir())

    def require_data(self, config: MemberConfig) -> None:
        """HostError where it has run and nothing of that is here.

        A member that forgot what it voted for may cost the others what they agreed on, and one that is alone would
        serve an empty store.
        """
        if config.begun and not self.has_data(config):
            raise HostError(
                f"cannot start {config.member}: its data are not on this host",
                hint="another member takes its place, if others are left; else restore a backup into a new cluster",
                reason=DATA_GONE,
            )

    def write(self, config: MemberConfig) -> None:
        self._data(config).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._directory / RECORD_FILE, msgspec.json.encode(config))

    def set_aside(self, config: MemberConfig) -> Path | None:
        """Move its data out of the way, where a person may look at them, and forget the record. Nothing is deleted."""
        data, aside = self._data(config), None
        if data.exists():
            removed = self._directory / REMOVED
            removed.mkdir(exist_ok=True, mode=0o700)
            aside = removed / f"{config.member}-{clock.timestamp().replace(':', '')}"
            data.rename(aside)
            sync_directory(removed)
        remove(self._directory / RECORD_FILE)
        return aside

    def daemon(self, config: MemberConfig) -> Daemon:
        return Daemon(DAEMON, argv=self._argv(config), directory=str(self._directory), stop_timeout_s=_STOP_S)

    def _data(self, config: MemberConfig) -> Path:
        return self._directory / config.member

    def _argv(self, config: MemberConfig) -> tuple[str, ...]:
        server, peer = tls_files(self._tls, SERVER), tls_files(self._tls, PEER)
        state = "new" if config.new_cluster else "existing"
        return (
            *(PROGRAM, "--name", config.member, "--data-dir", str(self._data(config))),
            *("--listen-client-urls", config.client_url, "--advertise-client-urls", config.client_url),
            *("--listen-peer-urls", config.peer_url, "--initial-advertise-peer-urls", config.peer_url),
            *("--initial-cluster", config.initial, "--initial-cluster-state", state),
            *("--initial-cluster-token", config.cluster),
            *("--cert-file", str(server.certificate), "--key-file", str(server.key)),
            *("--client-cert-auth", "--trusted-ca-file", str(server.authority)),
            *("--peer-cert-file", str(peer.certificate), "--peer-key-file", str(peer.key)),
            *("--peer-client-cert-auth", "--peer-trusted-ca-file", str(peer.authority)),
            # Every host has a certificate of the same authority; only members may speak to members.
            *("--peer-cert-allowed-cn", PEER),
            *("--quota-backend-bytes", str(config.quota)),
            # The gateway would call etcd with the server's own certificate.
            *("--enable-grpc-gateway=false", "--logger", "zap", "--log-level", "warn"),
            *config.flags,
        )
