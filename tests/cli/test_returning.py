"""A host that was deleted while it was away comes back: with the certificate that it has, or with a new token."""

from __future__ import annotations

import asyncio

import pytest

from quartermaster.backends.etcd.authorizing import EtcdAuthorization
from quartermaster.backends.etcd.files import LEADER
from quartermaster.orchestration.joining.access import StoreAccess, read_access
from quartermaster.orchestration.joining.authority import load_authority
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.profiles import profile_of
from quartermaster.stores import open_store
from quartermaster.stores.kv.etcd.settings import parse
from quartermaster.support import clock
from tests.cli.test_join import Hosts, etcd_command_line

__all__ = ["etcd_command_line"]


def access_of(qm: Hosts, host: str) -> StoreAccess:
    found = read_access(qm.state(host))
    assert found is not None
    return found


async def lose_the_lead(qm: Hosts, host: str) -> None:
    """It has the certificate of a leader still, and the user that it names is gone with its member of etcd."""
    store = await open_store(access_of(qm, "h1").leader_url)
    authority = await load_authority(store, "default")
    await store.close()
    files, says = HostCertificates(qm.state(host)), profile_of(LEADER, host, (), member="etcd-9")
    files.install(LEADER, authority.sign(files.request(LEADER), says, now=clock.wall_time()), says.digest)


async def forget(qm: Hosts, host: str) -> None:
    """As the leader does with a host that was deleted some time ago."""
    users = EtcdAuthorization(parse(access_of(qm, "h1").leader_url, {}), namespace="default")
    await users.remove_host(host)
    await users.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_host_that_was_deleted_while_it_was_away_comes_back(etcd_command_line: Hosts) -> None:
    qm = etcd_command_line
    up = qm("h1", "up", *qm.at("h1"))
    assert up.code == 0, up.err
    joined = qm("h2", "join", *qm.at("h2"), "-", stdin=qm("h1", "token", "create").out)
    assert joined.code == 0, joined.err

    assert qm("h2", "down").code == 0
    assert qm("h1", "delete", "host", "h2", "--force").code == 0
    asyncio.run(lose_the_lead(qm, "h2"))
    back = qm("h2", "up")
    assert back.out == "h2 is up\n", back.err
    assert "this host may not declare things for now" in back.err
    assert [line.split()[:2] for line in qm("h2", "get", "hosts").lines[1:]] == [["h1", "Ready"], ["h2", "Ready"]]

    assert qm("h2", "down").code == 0
    assert qm("h1", "delete", "host", "h2", "--force").code == 0
    asyncio.run(forget(qm, "h2"))
    refused = qm("h2", "up")
    assert refused.code == 1
    assert "cannot bring up h2: it was taken out of its cluster, and its certificate opens nothing" in refused.err
    assert "`qm token create` on a host of the cluster, then `qm join TOKEN` here, lets it in again" in refused.err
    again = qm("h2", "join", "-", stdin=qm("h1", "token", "create").out)
    assert again.out == "h2 is up\n", again.err
    assert "the certificate of h2 opens nothing any more" in again.err
    assert [line.split()[:2] for line in qm("h2", "get", "hosts").lines[1:]] == [["h1", "Ready"], ["h2", "Ready"]]
