"""Where the files of a host's TLS lie, and what their names are."""

from __future__ import annotations

from pathlib import Path

import msgspec

AUTHORITY_FILE = "ca.crt"
SERVER = "etcd-server"
PEER = "etcd-peer"
LEADER = "leader"
CERTIFICATES = "certificates"  # the service agent that keeps them


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths of PEM files: an authority, a certificate, its key."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def complete(self) -> bool:
        return self.authority.exists() and self.certificate.exists() and self.key.exists()


def tls_files(directory: Path, name: str) -> TlsFiles:
    return TlsFiles(directory / AUTHORITY_FILE, certificate_file(directory, name), key_file(directory, name))


def certificate_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.crt"


def key_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.key"
