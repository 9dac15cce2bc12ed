"""Throwaway certificates, so that tests talk TLS the way users do: a pinned authority, never "insecure".

trustme is a development dependency and imported only when certificates are asked for.
"""

import ssl
from pathlib import Path

import msgspec

from quartermaster.support.errors import QuartermasterError


class CertificateFiles(msgspec.Struct, frozen=True):
    """Paths of PEM files: the authority, and the certificate and key of a server or of a client."""

    authority: str
    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """For a client that trusts the authority and shows the certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


def create_certificates(directory: Path, *, user: str, group: str) -> tuple[CertificateFiles, CertificateFiles]:
    """An authority with a certificate for a loopback server and one for a client; returns (server, client)."""
    try:
        import trustme
    except ImportError:
        raise QuartermasterError(
            "cannot create certificates: the package trustme is missing", hint="run `pip install trustme`"
        ) from None
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority_file = directory / "ca.crt"
    authority.cert_pem.write_to_path(authority_file)

    def write(name: str, issued: trustme.LeafCert) -> CertificateFiles:
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        for position, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(certificate, append=position > 0)
        issued.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return CertificateFiles(str(authority_file), str(certificate), str(key))

    server = authority.issue_cert("127.0.0.1", "localhost", common_name="localhost")
    client = authority.issue_cert(f"{user}@quartermaster.test", common_name=user, organization_name=group)
    return write("server", server), write("client", client)
