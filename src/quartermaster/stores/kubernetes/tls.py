"""TLS settings out of certificates that lie in files or in the kubeconfig itself.

OpenSSL takes a client's key from a file only. A key that came as data goes through an anonymous file in memory, which
has no name, belongs to this process and is gone as soon as it was read.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from quartermaster.stores.kubernetes.connection import Connection
from quartermaster.support.errors import UsageError


def tls_context(connection: Connection, authority: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext | None:
    """The context for a connection whose certificates have been read; None for a server without TLS."""
    if not connection.server.startswith("https:"):
        return None
    # create_default_context refuses, since Python 3.13, authorities without a key identifier, which clusters have.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not connection.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        _trust(context, authority, connection)
    else:
        context.load_default_certs()
    if certificate:
        _present(context, certificate, key, connection)
    return context


def _trust(context: ssl.SSLContext, authority: bytes, connection: Connection) -> None:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(
            f'cannot use the certificate authority of context "{connection.name}": it is not a PEM certificate',
            hint=f"look at certificate-authority in {connection.origin}",
        ) from error


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes, connection: Connection) -> None:
    with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
        try:
            # Without a password function OpenSSL would ask on the terminal.
            context.load_cert_chain(certificate_path, key_path, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None)
            cause = (
                "they do not belong together" if reason == "KEY_VALUES_MISMATCH" else "they are not PEM files in order"
            )
            raise UsageError(
                f'cannot use the client certificate and key of user "{connection.user.name}": {cause}',
                hint=f"look at client-certificate and client-key in {connection.origin}",
            ) from error


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """The path of a file without a name."""
    number = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(number, rest) :]
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
