"""From nothing to a host of a cluster: who is let in, who is not, and what a host may do then."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.etcd.member import LocalMember, MemberConfig
from quartermaster.host import open_host
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.joining.access import read_access
from quartermaster.orchestration.joining.bootstrap import bootstrap
from quartermaster.orchestration.joining.client import join
from quartermaster.orchestration.joining.tokens import decode, encode
from quartermaster.resources import Assignment, ConfigMap, Host, Lease, ObjectMeta, PersistentVolume, Secret
from quartermaster.resources.orchestration import AssignmentSpec
from quartermaster.stores import open_store
from quartermaster.support.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    ToolMissingError,
    UnauthorizedError,
    UnavailableError,
    UsageError,
)

from .hosts import Cluster


async def first_byte(address: str, port: int, context: ssl.SSLContext) -> bytes:
    """TLS 1.3 tells a client only with the first answer that it is not wanted."""
    reader, writer = await asyncio.open_connection(address, port, ssl=context)
    try:
        writer.write(b"GET /members HTTP/1.1\r\nHost: x\r\n\r\n")
        return await reader.readexactly(1)
    finally:
        writer.close()


async def registered(cluster: Cluster, *names: str) -> None:
    async with cluster.store() as store, asyncio.timeout(30):
        while True:
            hosts = {host.metadata.name: host for host in (await store.list(Host, "default")).items}
            if all(name in hosts and hosts[name].status.inventory is not None for name in names):
                return
            await asyncio.sleep(0.1)


async def until_state(cluster: Cluster, name: str, state: str) -> None:
    async with cluster.store() as store, asyncio.timeout(30):
        while (await store.get(Host, name, "default")).status.state != state:
            await asyncio.sleep(0.1)


async def opens_nothing(url: str) -> None:
    store = await open_store(f"{url}&timeout=2")
    with pytest.raises((ForbiddenError, UnauthorizedError)):
        await store.get(Host, "h2", "default")
    await store.close()


async def test_etcd_that_is_not_installed_is_a_sentence_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("quartermaster.host.commands._SYSTEM_PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="etcd is not installed; install the package etcd-server"):
        await bootstrap(tmp_path / "h1", "h1", ["127.0.0.1"], machine=open_host(tmp_path / "h1"))
    assert read_access(tmp_path / "h1") is None


async def test_no_cluster_is_made_over_the_member_of_another(tmp_path: Path) -> None:
    LocalMember(tmp_path / "h1").write(MemberConfig(member="etcd-7", address="127.0.0.1", begun=True))
    with pytest.raises(ConflictError, match=r"cannot make a cluster of host h1: .*/etcd holds a member of another one"):
        await bootstrap(tmp_path / "h1", "h1", ["127.0.0.1"], machine=open_host(tmp_path / "h1"))


@pytest.mark.slow
async def test_a_host_joins_with_a_token_that_then_opens_nothing(etcd_hosts: Cluster, tmp_path: Path) -> None:
    await etcd_hosts.begin("h1")
    token = await etcd_hosts.token()
    await etcd_hosts.add("h2", token=token)
    await registered(etcd_hosts, "h1", "h2")

    thief = tmp_path / "thief"
    for name in ("h2", "h3"):
        with pytest.raises(ForbiddenError, match="host h2 has used it, and it works once"):
            await join(thief, token, host=name, addresses=["127.0.0.1"])
    assert read_access(thief) is None
    assert not list((thief / "tls").glob("*.crt"))

    with pytest.raises(UsageError, match="this host belongs to a cluster already, as h2"):
        await join(etcd_hosts.hosts["h2"].directory, token, host="h2", addresses=["127.0.0.1"])


@pytest.mark.slow
async def test_a_token_that_expired_or_is_for_another_is_refused(etcd_hosts: Cluster, tmp_path: Path) -> None:
    await etcd_hosts.begin("h1")
    with pytest.raises(ForbiddenError, match=r"it has expired at 20.*qm token create"):
        await join(tmp_path / "late", await etcd_hosts.token(lifetime_s=-1.0), host="h2", addresses=["127.0.0.1"])
    with pytest.raises(ForbiddenError, match="it is for host h3 only"):
        await join(tmp_path / "other", await etcd_hosts.token(host="h3"), host="h2", addresses=["127.0.0.1"])
    with pytest.raises(InvalidError, match="cannot create host"):
        await join(tmp_path / "bad", await etcd_hosts.token(), host="Not A Name", addresses=["127.0.0.1"])


@pytest.mark.slow
async def test_a_name_that_is_taken_costs_no_token(etcd_hosts: Cluster, tmp_path: Path) -> None:
    await etcd_hosts.begin("h1")
    token = await etcd_hosts.token()
    with pytest.raises(ForbiddenError, match="cannot join as h1: a host of that name is in the cluster"):
        await join(tmp_path / "new", token, host="h1", addresses=["127.0.0.1"])
    assert (await join(tmp_path / "new", token, host="h2", addresses=["127.0.0.1"])).host == "h2"


@pytest.mark.slow
async def test_a_machine_that_takes_the_place_of_a_host_locks_the_old_one_out(
    etcd_hosts: Cluster, tmp_path: Path
) -> None:
    await etcd_hosts.begin("h1")
    old = await etcd_hosts.add("h2")
    await registered(etcd_hosts, "h1", "h2")
    token = await etcd_hosts.token(host="h2")
    await until_state(etcd_hosts, "h2", "Ready")
    with pytest.raises(ForbiddenError, match="cannot take the place of host h2: it is there and gives signs of life"):
        await join(tmp_path / "new", token, host="h2", addresses=["127.0.0.1"])

    await old.kill()
    await until_state(etcd_hosts, "h2", "Silent")
    new = await join(tmp_path / "new", token, host="h2", addresses=["127.0.0.1"])
    await opens_nothing(old.access.url)
    store = await open_store(new.url)
    host = await store.get(Host, "h2", "default")
    assert host.spec.addresses == ("127.0.0.1",)
    await store.update(replace(host, metadata=replace(host.metadata, labels={"rack": "7"})))
    await store.close()


@pytest.mark.slow
async def test_a_name_that_was_given_up_is_taken_again_without_its_old_certificate(
    etcd_hosts: Cluster, tmp_path: Path
) -> None:
    await etcd_hosts.begin("h1")
    stolen = await join(tmp_path / "stolen", await etcd_hosts.token(), host="h2", addresses=["127.0.0.1"])
    async with etcd_hosts.store() as leader:
        await leader.delete(Host, "h2", "default")
    await join(tmp_path / "new", await etcd_hosts.token(), host="h2", addresses=["127.0.0.1"])
    await opens_nothing(stolen.url)


@pytest.mark.slow
async def test_an_interrupted_join_is_completed_by_the_same_command(
    etcd_hosts: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await etcd_hosts.begin("h1")
    token = await etcd_hosts.token()
    with monkeypatch.context() as broken:
        broken.setattr(
            "quartermaster.orchestration.joining.certificates.HostCertificates.install",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()),
        )
        with pytest.raises(KeyboardInterrupt):
            await join(tmp_path / "h2", token, host="h2", addresses=["127.0.0.1"])
    assert read_access(tmp_path / "h2") is None
    assert (await join(tmp_path / "h2", token, host="h2", addresses=["127.0.0.1"])).host == "h2"


@pytest.mark.slow
async def test_who_is_not_the_cluster_of_the_token_gets_nothing_secret(etcd_hosts: Cluster, tmp_path: Path) -> None:
    await etcd_hosts.begin("h1")
    real = decode(await etcd_hosts.token())
    forged = encode(replace(real, fingerprint="0" * 64))
    with pytest.raises(UnauthorizedError, match="is not the cluster that the token is for; nothing was sent there"):
        await join(tmp_path / "h2", forged, host="h2", addresses=["127.0.0.1"])
    nobody = encode(replace(real, addresses=("127.0.0.1:1",)))
    with pytest.raises(UnavailableError, match=r"no leader answers at 127.0.0.1:1 \("):
        await join(tmp_path / "h2", nobody, host="h2", addresses=["127.0.0.1"], patience_s=1.0)


@pytest.mark.slow
async def test_strangers_at_the_door_learn_nothing_and_hurt_nobody(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    token = decode(await etcd_hosts.token())
    address, _, port = token.addresses[0].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def say(text: bytes) -> bytes:
        async with asyncio.timeout(20):
            while True:
                try:
                    reader, writer = await asyncio.open_connection(address, int(port), ssl=context)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
            writer.write(text)
            answer = await reader.read()
            writer.close()
            return answer

    assert b" 404 " in await say(b"GET / HTTP/1.1\r\n\r\n")
    assert b" 400 " in await say(b"hello\r\n\r\n")
    assert b" 400 " in await say(b"POST /v1/join HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
    assert b" 400 " in await say(b"POST /v1/join HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    assert b" 200 " in await say(b"GET /v1/authority HTTP/1.1\r\n\r\n")
    assert b"PRIVATE" not in await say(b"GET /v1/authority HTTP/1.1\r\n\r\n")
    assert first.access.may_lead


@pytest.mark.slow
async def test_a_hosts_credentials_write_what_is_its_own_and_read_no_secret_of_others(etcd_hosts: Cluster) -> None:
    await etcd_hosts.begin("h1")
    await etcd_hosts.add("h2")
    await registered(etcd_hosts, "h1", "h2")
    for host in etcd_hosts.hosts.values():
        await host.kill()  # so that nothing changes while it is looked at; etcd runs on
    async with etcd_hosts.store() as leader:
        for name in ("backend.h1", "backend.h2", "cluster-wide"):
            await leader.create(Secret(metadata=ObjectMeta(name=name, namespace="default"), data={"key": "c2VjcmV0"}))
        for host in ("h1", "h2"):
            meta = ObjectMeta(name=f"local.{host}", namespace="default")
            await leader.create(Assignment(metadata=meta, spec=AssignmentSpec(host=host, agent="local")))
        theirs = await leader.get(Host, "h1", "default")
        work = await leader.get(Assignment, "local.h1", "default")
        beat = await leader.get(Lease, heartbeat_name("h1"), "default")

    store = await open_store(etcd_hosts.hosts["h2"].access.url)
    own = await store.get(Host, "h2", "default")
    await store.update(replace(own, metadata=replace(own.metadata, labels={"rack": "7"})))
    report = await store.get(Assignment, "local.h2", "default")
    await store.update_status(replace(report, status=replace(report.status, state="running")))
    assert (await store.get(Secret, "backend.h2", "default")).data == {"key": "c2VjcmV0"}
    assert len((await store.list(Host, "default")).items) == 2
    assert (await store.list(PersistentVolume)).items == ()

    for forbidden in (
        store.update(replace(theirs, metadata=replace(theirs.metadata, labels={"rack": "7"}))),
        store.update_status(replace(work, status=replace(work.status, state="failed"))),
        store.update(replace(beat, spec=replace(beat.spec, holder_identity="h2"))),
        store.delete(Host, "h1", "default"),
        store.create(Host(metadata=ObjectMeta(name="h3", namespace="default"))),
        store.create(ConfigMap(metadata=ObjectMeta(name="quartermaster-etcd-2", namespace="default"))),
        store.create(Lease(metadata=ObjectMeta(name="quartermaster-leader", namespace="default"))),
        store.get(Secret, "quartermaster-ca", "default"),
        store.get(Secret, "backend.h1", "default"),
        store.get(Secret, "cluster-wide", "default"),
        store.list(Secret, "default"),
        store.list(Secret),
    ):
        with pytest.raises(ForbiddenError):
            await forbidden
    await store.close()


@pytest.mark.slow
async def test_a_hosts_certificate_is_no_peers_and_without_one_nobody_gets_in(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    await etcd_hosts.add("h2")
    joined = etcd_hosts.hosts["h2"]
    tls = joined.access.tls
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    context.check_hostname = False
    context.load_cert_chain(tls / "host.crt", tls / "host.key")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await first_byte(first.address, 2380, context)
    nobody = await open_store(f"etcds://{first.address}:2379?ca={tls / 'ca.crt'}&timeout=2")
    with pytest.raises((UnavailableError, UnauthorizedError)):
        await nobody.list(Host, "default")
    await nobody.close()


@pytest.mark.slow
async def test_keys_and_access_are_readable_by_their_owner_alone(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    for path in [first.directory / "access.json", *first.access.tls.glob("*")]:
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path
    assert not (first.directory / "bootstrap.json").exists()
    assert not any(b"BEGIN EC" in path.read_bytes() for path in first.access.tls.glob("ca*"))
    assert os.stat(first.access.tls).st_mode & 0o077 == 0
