"""What a role of etcd, limited by prefixes, makes of the layout of keys: a host writes what is its own."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from quartermaster.resources import Assignment, Host, Lease, ObjectMeta, all_kinds, kind_of
from quartermaster.resources.kubernetes.core import LeaseSpec
from quartermaster.resources.orchestration import AssignmentSpec, AssignmentStatus, assignment_name
from quartermaster.stores.kv.etcd import Settings, connect
from quartermaster.stores.objects import ObjectStore
from quartermaster.stores.objects.keys import host_prefixes, kind_prefix
from quartermaster.support.errors import ForbiddenError
from quartermaster.testing.servers import EtcdCluster

NAMESPACE = "storage"
PREFIX = "/quartermaster"
# One name is the beginning of the other: a prefix that forgot its slash would cover both.
OWN, NEIGHBOUR = "host1", "host10"


def heartbeat(host: str) -> Lease:
    meta = ObjectMeta(name=f"heartbeat.{host}", namespace=NAMESPACE)
    return Lease(metadata=meta, spec=LeaseSpec(holder_identity=host, lease_transitions=1, lease_duration_seconds=15))


async def write_own_things(store: ObjectStore, host: str) -> None:
    """What an agent of that host does all day."""
    own = await store.get(Host, host, NAMESPACE)
    await store.update(replace(own, metadata=replace(own.metadata, labels={"seen": "yes"})))
    found = await store.get(Assignment, assignment_name("glusterfs", host), NAMESPACE)
    await store.update_status(replace(found, status=replace(found.status, observed_generation=1)))
    held = await store.get(Lease, f"heartbeat.{host}", NAMESPACE)
    await store.update(replace(held, spec=replace(held.spec, renew_time="2026-01-01T00:00:00.000000Z")))


async def limited_to(etcd: EtcdCluster, host: str) -> ObjectStore:
    await etcd.etcdctl("user", "add", f"{host}:secret")
    await etcd.etcdctl("role", "add", host)
    kinds = tuple(kind_of(cls) for cls in all_kinds())
    for prefix in host_prefixes(kinds, NAMESPACE, host):
        await etcd.etcdctl("role", "grant-permission", host, "readwrite", "--prefix", PREFIX + prefix)
    for kind in kinds:
        readable = f"{PREFIX}{kind_prefix(kind)}{NAMESPACE}/"
        await etcd.etcdctl("role", "grant-permission", host, "read", "--prefix", readable)
    await etcd.etcdctl("user", "grant-role", host, host)
    return opened_as(etcd, host, "secret")


def opened_as(etcd: EtcdCluster, user: str, password: str) -> ObjectStore:
    addresses = tuple(endpoint.partition("://")[2] for endpoint in etcd.endpoints)
    return ObjectStore(connect(Settings(endpoints=addresses, prefix=PREFIX, user=user, password=password)))


@pytest.mark.slow
async def test_a_hosts_role_writes_what_is_the_hosts_own_and_nothing_else(
    etcd_throwaway: Callable[..., Awaitable[EtcdCluster]],
) -> None:
    etcd = await etcd_throwaway(size=1, auth=True)
    admin = opened_as(etcd, etcd.access.user, etcd.access.password)
    for host in (OWN, NEIGHBOUR):
        await admin.create(Host(metadata=ObjectMeta(name=host, namespace=NAMESPACE)))
        meta = ObjectMeta(name=assignment_name("glusterfs", host), namespace=NAMESPACE)
        await admin.create(Assignment(metadata=meta, spec=AssignmentSpec(host=host, agent="glusterfs")))
        await admin.create(heartbeat(host))
    store = await limited_to(etcd, OWN)

    await write_own_things(store, OWN)
    assert await store.lease_held(NAMESPACE, f"heartbeat.{OWN}")
    assert len((await store.list(Host, NAMESPACE)).items) == 2

    theirs = await store.get(Host, NEIGHBOUR, NAMESPACE)
    report = await store.get(Assignment, assignment_name("glusterfs", NEIGHBOUR), NAMESPACE)
    beat = await store.get(Lease, f"heartbeat.{NEIGHBOUR}", NAMESPACE)
    for forbidden in (
        store.update(replace(theirs, metadata=replace(theirs.metadata, labels={"seen": "yes"}))),
        store.update_status(replace(report, status=AssignmentStatus(observed_generation=1))),
        store.update(replace(beat, spec=replace(beat.spec, holder_identity=OWN))),
        store.create(replace(heartbeat(OWN), metadata=ObjectMeta(name="leader", namespace=NAMESPACE))),
        store.create(Host(metadata=ObjectMeta(name="host2", namespace=NAMESPACE))),
        store.delete(Host, NEIGHBOUR, NAMESPACE),
        store.list(Host),
        store.list(Host, "elsewhere"),
    ):
        with pytest.raises(ForbiddenError):
            await forbidden
    assert (await admin.get(Host, NEIGHBOUR, NAMESPACE)) == theirs
    await store.close()
    await admin.close()
