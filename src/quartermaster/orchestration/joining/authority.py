"""The certificate authority of a cluster. Its key is a Secret in the store, which only leaders can read.

cryptography is imported when something is made or signed: an agent does neither for months.
"""

from __future__ import annotations

import binascii
import hashlib
import ipaddress
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from quartermaster.orchestration.joining.profiles import BACKDATED_S, LIFETIME_S, Profile
from quartermaster.resources.kubernetes.core import Secret
from quartermaster.resources.model import ObjectMeta
from quartermaster.stores.base import Store
from quartermaster.support.errors import AlreadyExistsError, InvalidError, NotFoundError, UsageError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_SECRET = "quartermaster-ca"  # noqa: S105 - the name of an object
AUTHORITY_LIFETIME_S = 10 * 365 * 86400.0
_NAME = "quartermaster"


class Issued(msgspec.Struct, frozen=True):
    """A certificate, and from when to when it counts (seconds since 1970)."""

    certificate: str
    not_before: float
    not_after: float


class Authority:
    """Signs. Made by `create` or `load`."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate = certificate
        self.key = key

    @classmethod
    def create(cls, *, now: float) -> Authority:
        modern = _cryptography()
        x509, serialization = modern.x509, modern.serialization
        key = modern.ec.generate_private_key(modern.ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(modern.NameOID.COMMON_NAME, _NAME)])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(now - BACKDATED_S))
            .not_valid_after(_moment(now + AUTHORITY_LIFETIME_S))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, modern.hashes.SHA256())
        )
        return cls(certificate.public_bytes(serialization.Encoding.PEM), _key_text(key))

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.certificate)

    def sign(self, request: str, profile: Profile, *, now: float, lifetime_s: float = LIFETIME_S) -> Issued:
        """A certificate for the key of the request, which proves that it has it; all else is the profile's."""
        modern = _cryptography()
        x509 = modern.x509
        public = _requested_key(request)
        authority = x509.load_pem_x509_certificate(self.certificate)
        signer = modern.serialization.load_pem_private_key(self.key, None)
        not_before, not_after = now - BACKDATED_S, now + lifetime_s
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(modern.NameOID.COMMON_NAME, profile.common_name)]))
            .issuer_name(authority.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(not_before))
            .not_valid_after(_moment(not_after))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_purposes(modern, profile)), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if alternatives := _alternatives(modern, profile):
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(signer, modern.hashes.SHA256())
        text = certificate.public_bytes(modern.serialization.Encoding.PEM).decode()
        return Issued(text, not_before, not_after)


def new_key() -> bytes:
    """A private key in PEM."""
    modern = _cryptography()
    return _key_text(modern.ec.generate_private_key(modern.ec.SECP256R1()))


def request_for(key: bytes) -> str:
    """A request for a certificate of that key; who asks is not said in it."""
    modern = _cryptography()
    private = modern.serialization.load_pem_private_key(key, None)
    request = modern.x509.CertificateSigningRequestBuilder().subject_name(modern.x509.Name([]))
    text: bytes = request.sign(private, modern.hashes.SHA256()).public_bytes(modern.serialization.Encoding.PEM)
    return text.decode()


def key_digest(request: str) -> str:
    """Tells two requesters apart: the digest of the public key."""
    modern = _cryptography()
    form = modern.serialization
    public = _requested_key(request).public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(public).hexdigest()


def fingerprint_of(certificate: bytes) -> str:
    """By which a certificate is known: the SHA-256 of it, in hexadecimal."""
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode())).hexdigest()
    except ValueError as error:
        raise InvalidError("cannot read a certificate: it is not PEM") from error


async def load_authority(store: Store, namespace: str) -> Authority:
    try:
        secret = await store.get(Secret, AUTHORITY_SECRET, namespace)
    except NotFoundError as error:
        raise NotFoundError(
            f"cannot find the cluster's certificate authority in the namespace {namespace}",
            hint="this store was not made by `qm up`: it has no hosts of its own",
        ) from error
    values = {name: binascii.a2b_base64(text) for name, text in secret.data.items()}
    return Authority(values["tls.crt"], values["tls.key"])


async def save_authority(store: Store, namespace: str, authority: Authority) -> None:
    """Once for a cluster; one that is there is left alone."""
    data = {"tls.crt": authority.certificate, "tls.key": authority.key}
    encoded = {name: binascii.b2a_base64(value, newline=False).decode() for name, value in data.items()}
    meta = ObjectMeta(name=AUTHORITY_SECRET, namespace=namespace)
    try:
        await store.create(Secret(metadata=meta, type="kubernetes.io/tls", data=encoded))
    except AlreadyExistsError:
        return


def _requested_key(request: str) -> ec.EllipticCurvePublicKey:
    modern = _cryptography()
    try:
        parsed = modern.x509.load_pem_x509_csr(request.encode())
    except ValueError as error:
        raise InvalidError("cannot sign a certificate: the request is not a PEM of PKCS#10") from error
    public = parsed.public_key()
    if not parsed.is_signature_valid:
        raise InvalidError("cannot sign a certificate: the request is not signed by its own key")
    if not isinstance(public, modern.ec.EllipticCurvePublicKey) or not isinstance(public.curve, modern.ec.SECP256R1):
        raise InvalidError("cannot sign a certificate: its key is not of the curve P-256")
    trusted: ec.EllipticCurvePublicKey = public
    return trusted


def _purposes(modern: Any, profile: Profile) -> list[Any]:
    oid = modern.ExtendedKeyUsageOID
    return [*([oid.SERVER_AUTH] if profile.server else []), *([oid.CLIENT_AUTH] if profile.client else [])]


def _alternatives(modern: Any, profile: Profile) -> list[x509.GeneralName]:
    names = [modern.x509.DNSName(name) for name in profile.names]
    return [*names, *(modern.x509.IPAddress(ipaddress.ip_address(text)) for text in profile.addresses)]


def _key_text(key: Any) -> bytes:
    form = _cryptography().serialization
    text: bytes = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    return text


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


class _Modern:
    """The parts of cryptography that are used here."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        self.x509 = x509
        self.hashes = hashes
        self.serialization = serialization
        self.ec = ec
        self.NameOID = NameOID
        self.ExtendedKeyUsageOID = ExtendedKeyUsageOID


def _cryptography() -> Any:
    try:
        return _Modern()
    except ImportError as error:
        raise UsageError(
            "cannot make certificates: the package cryptography is missing", hint="pip install 'quartermaster[etcd]'"
        ) from error
