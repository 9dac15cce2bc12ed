"""A cluster of real members grows with its hosts and shrinks with them, and is there for a writer all the while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from quartermaster.backends.etcd.member import LocalMember
from quartermaster.engine.election import LEADER_LEASE
from quartermaster.orchestration.heartbeat import heartbeat_name
from quartermaster.orchestration.joining.client import join
from quartermaster.orchestration.joining.leaving import announce
from quartermaster.resources import ConfigMap, Event, Host, Lease, ObjectMeta
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.orchestration import HostSpec
from quartermaster.stores import open_store
from quartermaster.stores.modify import modify
from quartermaster.support import clock
from quartermaster.support.errors import ForbiddenError
from quartermaster.support.tasks import TaskGroup

from .hosts import Cluster, until

# What an election among the members takes, on a busy machine. A majority lost by us would last until the test gives up.
LONGEST_SILENCE_S = 10.0


class Writer:
    """Writes as fast as it is answered, and remembers how long it ever had to wait."""

    def __init__(self) -> None:
        self.written = 0
        self.longest_s = 0.0

    async def run(self, url: str) -> None:
        store = await open_store(url)
        loop = asyncio.get_running_loop()
        try:
            await store.create(ConfigMap(metadata=ObjectMeta(name="counter", namespace="default")))
            while True:
                began = loop.time()

                def counted(found: ConfigMap) -> ConfigMap:
                    return replace(found, data={"n": str(int(found.data.get("n", "0")) + 1)})

                await modify(store, ConfigMap, "counter", "default", counted)
                self.longest_s = max(self.longest_s, loop.time() - began)
                self.written += 1
                await asyncio.sleep(0.01)
        finally:
            await store.close()


@asynccontextmanager
async def writing(cluster: Cluster) -> AsyncIterator[Writer]:
    writer = Writer()
    async with TaskGroup() as group:
        group.start(writer.run(cluster.hosts["h1"].access.leader_url))
        yield writer
        group.cancel()
    assert writer.longest_s < LONGEST_SILENCE_S
    assert writer.written > 50


@asynccontextmanager
async def bystanders(cluster: Cluster, count: int) -> AsyncIterator[None]:
    """Healthy hosts that only exist; by their names they come after all others."""
    names = [f"x{number:02}" for number in range(count)]

    async def beat() -> None:
        async with cluster.store() as store:
            for name in names:
                spec = HostSpec(addresses=("192.0.2.1",))
                await store.create(Host(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
                meta = ObjectMeta(name=heartbeat_name(name), namespace="default")
                held = LeaseSpec(holder_identity=name, lease_duration_seconds=60, lease_transitions=1)
                await store.create(Lease(metadata=meta, spec=held))
            while True:
                for name in names:
                    now = clock.micro_timestamp()
                    await modify(
                        store,
                        Lease,
                        heartbeat_name(name),
                        "default",
                        lambda lease, now=now: replace(lease, spec=replace(lease.spec, renew_time=now)),
                    )
                await asyncio.sleep(0.5)

    async with TaskGroup() as group:
        group.start(beat())
        yield
        group.cancel()
    async with cluster.store() as store:
        for name in names:
            await store.delete(Host, name, "default")


async def until_silent(cluster: Cluster, name: str) -> str:
    """Until nobody hears of that host any more; a token for a machine that takes its place."""
    async with cluster.store() as store, asyncio.timeout(60):
        while (await store.get(Host, name, "default")).status.state == "Ready":
            await asyncio.sleep(0.1)
    return await cluster.token(host=name)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_etcd_grows_from_one_to_three_and_five_and_shrinks_again_under_a_writer(etcd_hosts: Cluster) -> None:
    # Whoever writes or joins here knows h1, which stays: nobody has to learn of the others first.
    etcd_hosts.settings = replace(etcd_hosts.settings, settle_s=1.0)
    await etcd_hosts.begin("h1")
    async with writing(etcd_hosts):
        await etcd_hosts.add("h2")
        await etcd_hosts.until_members("h1")
        await etcd_hosts.add("h3")
        memory = await etcd_hosts.until_members("h1", "h2", "h3")
        assert [seat.id for seat in memory.seats] == ["etcd-1", "etcd-2", "etcd-3"]
        assert all(etcd_hosts.hosts[name].access.may_lead for name in ("h1",))
        await etcd_hosts.add("h4")
        await etcd_hosts.add("h5")
        async with bystanders(etcd_hosts, 16):
            await etcd_hosts.until_members("h1", "h2", "h3", "h4", "h5", timeout_s=90)
        await etcd_hosts.until_members("h1", "h2", "h3", timeout_s=60)
        for name in ("h4", "h5", "h3"):
            async with etcd_hosts.store() as store:
                await announce(store, name, "default", leaving=True)
        await etcd_hosts.until_members("h1", timeout_s=60)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_host_that_claims_the_address_of_another_takes_nothing_from_it(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    await etcd_hosts.add("h2")
    token = await etcd_hosts.token()
    with pytest.raises(ForbiddenError, match=f"cannot join as h3: the address {first.address} is that of host h1"):
        await join(etcd_hosts.directory / "thief", token, host="h3", addresses=[first.address])
    await etcd_hosts.add("h3", token=token, claims=first.address)  # the mistake has cost no token
    async with etcd_hosts.store() as store, asyncio.timeout(60):
        while "WrongAddress" not in [one.reason for one in (await store.list(Event, "default")).items]:
            await asyncio.sleep(0.1)
    memory = await etcd_hosts.until_members("h1")
    assert [seat.id for seat in memory.seats] == ["etcd-1"]
    assert LocalMember(first.directory).read() is not None
    assert not (first.directory / "etcd" / "removed").exists()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_host_lost_for_good_is_replaced_by_another(etcd_hosts: Cluster) -> None:
    await etcd_hosts.begin("h1")
    for name in ("h2", "h3", "h4"):
        await etcd_hosts.add(name)
    await etcd_hosts.until_members("h1", "h2", "h3")
    async with writing(etcd_hosts):
        await etcd_hosts.hosts["h2"].lose()
        memory = await etcd_hosts.until_members("h1", "h3", "h4", timeout_s=90)
    assert "etcd-2" not in {seat.id for seat in memory.seats}
    async with etcd_hosts.store() as store:
        assert len((await store.list(Host, "default")).items) == 4


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_first_host_can_be_lost_too_and_the_others_go_on(etcd_hosts: Cluster) -> None:
    """Nothing hangs on it: neither the lead, nor the endpoints that the others knew when they joined."""
    await etcd_hosts.begin("h1")
    for name in ("h2", "h3", "h4"):
        await etcd_hosts.add(name)
    await etcd_hosts.until_members("h1", "h2", "h3")
    await until(lambda: all(len(host.access.endpoints) == 3 for host in etcd_hosts.hosts.values()))
    first = etcd_hosts.hosts.pop("h1")
    await first.lose()
    memory = await etcd_hosts.until_members("h2", "h3", "h4", timeout_s=90)
    assert {seat.host for seat in memory.seats} == {"h2", "h3", "h4"}
    # And a new host joins with a token made by who leads now.
    await etcd_hosts.add("h5")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_new_machine_takes_the_place_of_the_first_host_and_gets_another_member(etcd_hosts: Cluster) -> None:
    """With three hosts and no spare one: the member that was there never starts on a machine without its data."""
    await etcd_hosts.begin("h1")
    for name in ("h2", "h3"):
        await etcd_hosts.add(name)
    await etcd_hosts.until_members("h1", "h2", "h3")
    async with etcd_hosts.store() as store:
        await store.create(ConfigMap(metadata=ObjectMeta(name="kept", namespace="default")))
    await until(lambda: etcd_hosts.hosts["h2"].access.may_lead)
    first = etcd_hosts.hosts["h1"]
    await first.lose()
    first.wipe()
    token = await until_silent(etcd_hosts, "h1")
    await etcd_hosts.add("h1", token=token)
    memory = await etcd_hosts.until_members("h1", "h2", "h3", timeout_s=90)
    assert sorted(seat.id for seat in memory.seats) == ["etcd-2", "etcd-3", "etcd-4"]
    async with etcd_hosts.store() as store:
        assert await store.get(ConfigMap, "kept", "default")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_host_that_leads_gives_up_its_member_and_its_agent_goes_on(etcd_hosts: Cluster) -> None:
    first = await etcd_hosts.begin("h1")
    for name in ("h2", "h3", "h4"):
        await etcd_hosts.add(name)
    await etcd_hosts.until_members("h1", "h2", "h3")
    async with etcd_hosts.store() as store:
        assert (await store.get(Lease, LEADER_LEASE, "default")).spec.holder_identity == "h1"
        await announce(store, "h1", "default", leaving=True)
    await etcd_hosts.until_members("h2", "h3", "h4", timeout_s=90)
    await until(lambda: not first.access.may_lead)
    host = await open_store(first.access.url)
    before = (await host.get(Lease, heartbeat_name("h1"), "default")).spec.renew_time
    async with asyncio.timeout(30):
        while (await host.get(Lease, heartbeat_name("h1"), "default")).spec.renew_time == before:
            await asyncio.sleep(0.1)
    await host.close()
    assert first.runs


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_oldest_etcd_grows_and_hands_over_as_well(etcd_oldest_hosts: Cluster) -> None:
    await etcd_oldest_hosts.begin("h1")
    for name in ("h2", "h3"):
        await etcd_oldest_hosts.add(name)
    await etcd_oldest_hosts.until_members("h1", "h2", "h3")
    await etcd_oldest_hosts.hosts["h3"].lose()
    await etcd_oldest_hosts.add("h4")
    await etcd_oldest_hosts.until_members("h1", "h2", "h4", timeout_s=90)
