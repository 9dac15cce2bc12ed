"""Certificates: what they say is the leader's word, keys never leave their host, and renewal is nobody's business."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from quartermaster.orchestration.joining.authority import Authority, key_digest, new_key, request_for
from quartermaster.orchestration.joining.certificates import HostCertificates, Installed
from quartermaster.orchestration.joining.profiles import certificates_of, is_due, profile_of
from quartermaster.resources import Assignment, ConfigMap, ObjectMeta
from quartermaster.support import clock
from quartermaster.support.errors import InvalidError

from .hosts import Cluster, until

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create(now=NOW)


def parsed(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


def test_of_a_request_only_the_key_counts(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "leader.h1")])
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("leader.quartermaster")]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    got = parsed(authority.sign(greedy, profile_of("host", "h2", ()), now=NOW).certificate)
    assert got.subject.rfc4514_string() == "CN=host.h2"
    assert not got.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        got.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    usage = got.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]


def test_what_is_no_request_of_its_own_key_is_not_signed(authority: Authority) -> None:
    weak = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(rsa.generate_private_key(65537, 2048), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    for request, cause in (("nonsense", "not a PEM"), (weak, "not of the curve P-256")):
        with pytest.raises(InvalidError, match=cause):
            authority.sign(request, profile_of("host", "h2", ()), now=NOW)


def test_two_requests_of_one_key_are_known_to_be_of_one() -> None:
    key = new_key()
    assert key_digest(request_for(key)) == key_digest(request_for(key))
    assert key_digest(request_for(key)) != key_digest(request_for(new_key()))


def test_a_host_may_lead_only_while_its_member_serves() -> None:
    assert certificates_of(None) == certificates_of("removing") == ("host",)
    assert certificates_of("preparing") == certificates_of("joining") == ("host", "etcd-server", "etcd-peer")
    assert certificates_of("serving") == ("host", "etcd-server", "etcd-peer", "leader")


@pytest.mark.parametrize(("now", "due"), [(0.0, False), (199.0, False), (200.0, True), (400.0, True)])
def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left(now: float, due: bool) -> None:
    assert is_due(0.0, 300.0, now) is due


def test_a_certificate_for_another_key_is_refused(tmp_path: Path, authority: Authority) -> None:
    files = HostCertificates(tmp_path)
    files.write_authority(authority.certificate)
    files.request("host")
    other = authority.sign(request_for(new_key()), profile_of("host", "h2", ()), now=NOW)
    with pytest.raises(InvalidError, match="it is not for the key that was made here"):
        files.install("host", other, "p")
    assert files.installed() == {}
    right = authority.sign(files.request("host"), profile_of("host", "h2", ()), now=NOW)
    files.install("host", right, "p")
    assert files.installed() == {"host": Installed("p", right.not_before, right.not_after)}


def serial_of(path: Path) -> int:
    return parsed(path.read_text()).serial_number


def grow_old(directory: Path) -> None:
    """As if most of each certificate's life were over."""
    path = directory / "tls" / "certificates.json"
    known = msgspec.json.decode(path.read_bytes(), type=dict[str, Installed])
    now = clock.wall_time()
    old = {name: msgspec.structs.replace(one, not_before=now - 900, not_after=now + 100) for name, one in known.items()}
    path.write_bytes(msgspec.json.encode(old))


@pytest.mark.slow
async def test_certificates_are_renewed_by_themselves_while_everything_runs(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    second = await etcd_hosts.add("h2")
    names = {first: ("host", "leader", "etcd-server", "etcd-peer"), second: ("host",)}
    files = [host.access.tls / f"{name}.crt" for host, wanted in names.items() for name in wanted]
    async with etcd_hosts.store() as store, asyncio.timeout(30):
        while len((await store.list(Assignment, "default")).items) < 3:
            await asyncio.sleep(0.1)
    before = [serial_of(path) for path in files]
    keys = [path.with_suffix(".key").read_bytes() for path in files]
    for host in names:
        grow_old(host.directory)
    await until(lambda: all(serial_of(path) != old for path, old in zip(files, before, strict=True)))
    assert all(path.with_suffix(".key").read_bytes() != old for path, old in zip(files, keys, strict=True))
    # etcd shows the new certificate at the next handshake, and takes the new ones of its clients.
    address = (first.address, 2379)
    shown = await asyncio.to_thread(ssl.get_server_certificate, address)
    assert parsed(shown).serial_number == serial_of(first.access.tls / "etcd-server.crt")
    await second.kill()
    async with etcd_hosts.store() as store:
        await store.create(ConfigMap(metadata=ObjectMeta(name="after", namespace="default")))


@pytest.mark.slow
async def test_an_open_connection_takes_up_renewed_files_when_it_is_refused(etcd_hosts: Cluster) -> None:
    """A process that runs for longer than its certificate lives."""
    await etcd_hosts.begin("h1")
    second = await etcd_hosts.add("h2")
    async with etcd_hosts.store() as store:
        key = second.access.tls / "host.key"
        good = key.read_bytes(), (second.access.tls / "host.crt").read_bytes()
        stranger = Authority.create(now=clock.wall_time())
        await second.kill()
        other = new_key()
        bad = stranger.sign(request_for(other), profile_of("host", "h2", ()), now=clock.wall_time()).certificate
        key.write_bytes(other)
        (second.access.tls / "host.crt").write_text(bad)
        from quartermaster.resources import Host
        from quartermaster.stores import open_store

        tried = await open_store(second.access.url)
        reading = asyncio.ensure_future(tried.list(Host, "default"))
        await asyncio.sleep(1.0)
        assert not reading.done()
        key.write_bytes(good[0])
        (second.access.tls / "host.crt").write_bytes(good[1])
        async with asyncio.timeout(20):
            assert len((await reading).items) == len((await store.list(Host, "default")).items)
        await tried.close()
