"""TLS by setting, on real daemons: between nodes, and from clients to bricks; nobody gets in without a certificate."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quartermaster.testing.lab import VirtualHost
from tests.cluster.sites import Site

from .gluster import CLAIM, CLUSTER, LONG_S, NODE, READ, WRITE, pool_has, status_of, until_whole

pytestmark = [pytest.mark.netns, pytest.mark.deep, pytest.mark.timeout(900)]

WITH_TLS = CLUSTER.replace("type: glusterfs,", "type: glusterfs, tls: true,")
# Where gluster looks; all hosts of a lab share the machine's, so each gets one of its own.
PLACE = "/usr/lib/ssl"
PLAIN = "timeout 5 openssl s_client -connect {address}:24007 -CAfile {place}/glusterfs.ca </dev/null 2>&1 || true"


class Authority:
    """Signs a certificate for every host."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("lab", self._key, authority=True)

    def files_for(self, name: str) -> dict[str, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "glusterfs.pem": self._sign(name, key),
            "glusterfs.key": text,
            "glusterfs.ca": self.certificate,
        }

    def _sign(self, name: str, key: ec.EllipticCurvePrivateKey, *, authority: bool = False) -> bytes:
        now = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + datetime.timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)


async def furnish(host: VirtualHost, files: dict[str, bytes]) -> None:
    """A directory of its own in the place of the machine's."""
    copy = "mkdir /var/lib/ssl-here && cp --archive /usr/lib/ssl/. /var/lib/ssl-here"
    await host.run(["sh", "-c", f"{copy} && mount --bind /var/lib/ssl-here {PLACE}"])
    for name, content in files.items():
        await host.run(["sh", "-c", f"cat > {PLACE}/{name}"], stdin=content)


async def declare(site: Site, hosts: list[VirtualHost]) -> None:
    await site.apply(WITH_TLS)
    for host in hosts:
        await site.apply(NODE.format(host=host.name))


async def test_nodes_and_clients_talk_tls_where_the_settings_say_so(site: Site) -> None:
    first, second, third, fourth = site.lab.hosts
    authority = Authority()
    for host in (first, second, third):
        await furnish(host, authority.files_for(host.name))
    await declare(site, [first, second, third])
    await until_whole(site, 3)
    assert (await status_of(site))["spec"]["glusterfs"]["details"]["tls"] == "on"
    shown = await first.run(["sh", "-c", PLAIN.format(address=second.address, place=PLACE)])
    assert "subject=CN = h2" in shown.text.replace("subject=CN=", "subject=CN = ")

    await site.apply(CLAIM)
    await site.qm("volume", "mount", "data", "/mnt/data", host=second)
    await second.run(["sh", "-c", WRITE.format(files="1 2")])
    options = (await first.run(["gluster", "--mode=script", "volume", "info"])).text
    assert "client.ssl: on" in options
    assert "server.ssl: on" in options
    await site.qm("volume", "mount", "data", "/mnt/data", host=third)
    await third.run(["sh", "-c", READ])

    # A host without a certificate is not let in, and is told why before it waits for an answer.
    await site.add(fourth)
    with pytest.raises(Exception, match="it is served with TLS, and this host is not set up for it"):
        await site.qm("volume", "mount", "data", "/mnt/data", host=fourth)
    await site.apply(NODE.format(host=fourth.name))

    async def told() -> bool:
        found = await site.show("storagenode", fourth.name)
        return "cannot start glusterd with TLS" in str(found.get("status", {}))

    await site.until("the fourth node says what it lacks", told, timeout_s=LONG_S)
    assert await pool_has(first, 3)
    await furnish(fourth, authority.files_for(fourth.name))
    await until_whole(site, 4)
    assert await pool_has(first, 4)
