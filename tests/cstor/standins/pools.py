"""A stand-in for the cStor operators of OpenEBS: a CStorPoolCluster becomes instances that hold its devices."""

from __future__ import annotations

import asyncio
import contextlib

from msgspec.structs import replace

from quartermaster.engine import DONE, Request, Result, Scope
from quartermaster.resources import ObjectMeta, ObjectReference, OwnerReference
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.openebs import (
    CLAIMED,
    CSTOR_GROUP,
    CSTOR_VERSION,
    ONLINE,
    OPENEBS_NAMESPACE,
    POOL_CLUSTER_LABEL,
    POOL_INSTANCE_LABEL,
    PREDECESSOR_ANNOTATION,
    UNCLAIMED,
    BlockDevice,
    BlockDeviceClaim,
    BlockDeviceClaimSpec,
    BlockDeviceClaimStatus,
    CStorPoolCluster,
    CStorPoolClusterStatus,
    CStorPoolInstance,
    CStorPoolInstanceSpec,
    CStorPoolInstanceStatus,
    CStorVolumeReplica,
    PoolCapacity,
    PoolSpec,
)
from quartermaster.support.errors import AlreadyExistsError, NotFoundError

FINALIZER = "cstorpoolcluster.openebs.io/finalizer"
RESILVERING_S = 0.5
LOOK_AGAIN_S = 0.5


def devices_of(pool: PoolSpec | CStorPoolInstanceSpec) -> tuple[str, ...]:
    groups = (*pool.data_raid_groups, *pool.write_cache_raid_groups)
    return tuple(device.block_device_name for group in groups for device in group.block_devices)


def claim_name(device: BlockDevice) -> str:
    return f"bdc-cstor-{device.metadata.uid}"


class PoolOperator:
    """One request per CStorPoolCluster."""

    def __init__(self, scope: Scope, refused: list[str]) -> None:
        self._store = scope.store
        self._refused = refused
        self._resilvering: dict[str, float] = {}  # by uid of the claim: since when
        self._clusters = scope.caches.of(CStorPoolCluster)
        self._instances = scope.caches.of(CStorPoolInstance)
        self._devices = scope.caches.of(BlockDevice)
        self._claims = scope.caches.of(BlockDeviceClaim)

    async def reconcile(self, request: Request) -> Result:
        cluster = self._clusters.get(request)
        if cluster is None:
            return DONE
        if cluster.metadata.deletion_timestamp:
            return await self._tear_down(cluster)
        if FINALIZER not in cluster.metadata.finalizers:
            finalizers = (*cluster.metadata.finalizers, FINALIZER)
            cluster = await self._store.update(
                replace(cluster, metadata=replace(cluster.metadata, finalizers=finalizers))
            )
        predecessors: dict[str, str] = {}
        for pool in cluster.spec.pools:
            predecessors |= self._predecessors(cluster, pool)
            for name in devices_of(pool):
                await self._claim(cluster, name, predecessors.get(name, ""))
        kept = [await self._instance_of(cluster, pool) for pool in cluster.spec.pools]
        dropped = [instance for instance in self._instances_of(cluster) if instance.metadata.name not in kept]
        if not await self._drop(cluster, dropped):
            return Result(requeue_after_s=LOOK_AGAIN_S)
        replaced = await self._resilver(cluster)
        wanted = {name for pool in cluster.spec.pools for name in devices_of(pool)}
        await self._release(cluster, keep=wanted | replaced)
        await self._count(cluster)
        return Result(requeue_after_s=RESILVERING_S) if replaced else DONE

    async def _drop(self, cluster: CStorPoolCluster, instances: list[CStorPoolInstance]) -> bool:
        """Instances go, but never one that holds a volume: that it was asked for is remembered against who did."""
        held = {
            r.metadata.labels.get(POOL_INSTANCE_LABEL, "") for r in (await self._store.list(CStorVolumeReplica)).items
        }
        for instance in instances:
            name = instance.metadata.name
            if name in held:
                self._refused.append(f"pool {name} of {cluster.metadata.name} is to go and holds volume replicas")
                return False
            await self._store.delete(CStorPoolInstance, name, instance.metadata.namespace)
        return True

    def _predecessors(self, cluster: CStorPoolCluster, pool: PoolSpec) -> dict[str, str]:
        """By a disk that is new in its place: the disk that was there."""
        found = {}
        for instance in self._instances_of(cluster):
            for old, new in zip(instance.spec.data_raid_groups, pool.data_raid_groups, strict=False):
                before = [device.block_device_name for device in old.block_devices]
                after = [device.block_device_name for device in new.block_devices]
                if set(before) & set(after):
                    found.update({n: o for o, n in zip(before, after, strict=False) if o != n})
        return found

    async def _resilver(self, cluster: CStorPoolCluster) -> set[str]:
        """Disks that were replaced and are still copied from; a claim tells of it until that is done."""
        replaced = set()
        for cached in self._claims.list():
            if cached.metadata.labels.get(POOL_CLUSTER_LABEL) != cluster.metadata.name:
                continue
            old = cached.metadata.annotations.get(PREDECESSOR_ANNOTATION)
            if old is None:
                continue
            if self._resilvering.setdefault(cached.metadata.uid, self._time()) + RESILVERING_S > self._time():
                replaced.add(old)
                continue
            rest = {name: v for name, v in cached.metadata.annotations.items() if name != PREDECESSOR_ANNOTATION}
            await self._store.update(replace(cached, metadata=replace(cached.metadata, annotations=rest)))
        return replaced

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()

    def _instances_of(self, cluster: CStorPoolCluster) -> list[CStorPoolInstance]:
        name, namespace = cluster.metadata.name, cluster.metadata.namespace
        return [
            instance
            for instance in self._instances.list()
            if instance.metadata.labels.get(POOL_CLUSTER_LABEL) == name and instance.metadata.namespace == namespace
        ]

    async def _instance_of(self, cluster: CStorPoolCluster, pool: PoolSpec) -> str:
        """The instance that already holds most of the pool's devices, with the pool's spec; or a new one."""
        hostname = pool.node_selector[HOSTNAME_LABEL]
        wanted = CStorPoolInstanceSpec(
            host_name=hostname,
            node_selector=pool.node_selector,
            pool_config=pool.pool_config,
            data_raid_groups=pool.data_raid_groups,
            write_cache_raid_groups=pool.write_cache_raid_groups,
        )
        for instance in self._instances_of(cluster):
            shares_devices = bool(set(devices_of(instance.spec)) & set(devices_of(pool)))
            if not shares_devices and instance.spec.host_name != hostname:
                continue
            capacity = self._capacity(pool, instance.status.capacity)
            status = replace(instance.status, phase=ONLINE, capacity=capacity)
            labels = {**instance.metadata.labels, HOSTNAME_LABEL: hostname}
            changed = replace(instance, metadata=replace(instance.metadata, labels=labels), spec=wanted, status=status)
            if changed != instance:
                await self._store.update(changed)
            return instance.metadata.name
        first = devices_of(pool)[0]
        name = f"{cluster.metadata.name}-{first[-4:]}"
        owner = OwnerReference(
            api_version=f"{CSTOR_GROUP}/{CSTOR_VERSION}",
            kind="CStorPoolCluster",
            name=cluster.metadata.name,
            uid=cluster.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
        labels = {POOL_CLUSTER_LABEL: cluster.metadata.name, HOSTNAME_LABEL: hostname}
        metadata = ObjectMeta(name=name, namespace=cluster.metadata.namespace, labels=labels, owner_references=(owner,))
        status = CStorPoolInstanceStatus(phase=ONLINE, capacity=self._capacity(pool, PoolCapacity()))
        with contextlib.suppress(AlreadyExistsError):
            await self._store.create(CStorPoolInstance(metadata=metadata, spec=wanted, status=status))
        return name

    def _capacity(self, pool: PoolSpec, before: PoolCapacity) -> PoolCapacity:
        found = [self._devices.get(Request(OPENEBS_NAMESPACE, name)) for name in devices_of(pool)]
        total = sum(device.spec.capacity.storage for device in found if device is not None)
        used = int(before.used or 0)
        return PoolCapacity(used=used, total=total, free=total - used)

    async def _claim(self, cluster: CStorPoolCluster, name: str, predecessor: str) -> None:
        device = await self._store.get(BlockDevice, name, OPENEBS_NAMESPACE)
        labels = {POOL_CLUSTER_LABEL: cluster.metadata.name}
        annotations = {PREDECESSOR_ANNOTATION: predecessor} if predecessor else {}
        claim = BlockDeviceClaim(
            metadata=ObjectMeta(
                name=claim_name(device), namespace=OPENEBS_NAMESPACE, labels=labels, annotations=annotations
            ),
            spec=BlockDeviceClaimSpec(block_device_name=name, host_name=device.metadata.labels.get(HOSTNAME_LABEL, "")),
            status=BlockDeviceClaimStatus(phase="Bound"),
        )
        try:
            claim = await self._store.create(claim)
        except AlreadyExistsError:
            claim = await self._store.get(BlockDeviceClaim, claim.metadata.name, OPENEBS_NAMESPACE)
        if device.spec.claim_ref is None:
            reference = ObjectReference(
                kind="BlockDeviceClaim",
                namespace=OPENEBS_NAMESPACE,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
            )
            await self._store.update(
                replace(
                    device,
                    spec=replace(device.spec, claim_ref=reference),
                    status=replace(device.status, claim_state=CLAIMED),
                )
            )

    async def _release(self, cluster: CStorPoolCluster, *, keep: set[str]) -> None:
        for claim in self._claims.list():
            device_name = claim.spec.block_device_name
            if claim.metadata.labels.get(POOL_CLUSTER_LABEL) != cluster.metadata.name or device_name in keep:
                continue
            try:
                device = await self._store.get(BlockDevice, device_name, OPENEBS_NAMESPACE)
                await self._store.update(
                    replace(
                        device,
                        spec=replace(device.spec, claim_ref=None),
                        status=replace(device.status, claim_state=UNCLAIMED),
                    )
                )
            except NotFoundError:
                pass
            await self._store.delete(BlockDeviceClaim, claim.metadata.name, OPENEBS_NAMESPACE)

    async def _tear_down(self, cluster: CStorPoolCluster) -> Result:
        if FINALIZER not in cluster.metadata.finalizers:
            return DONE
        if not await self._drop(cluster, self._instances_of(cluster)):
            return Result(requeue_after_s=LOOK_AGAIN_S)
        await self._release(cluster, keep=set())
        kept = tuple(name for name in cluster.metadata.finalizers if name != FINALIZER)
        await self._store.update(replace(cluster, metadata=replace(cluster.metadata, finalizers=kept)))
        return DONE

    async def _count(self, cluster: CStorPoolCluster) -> None:
        count = len(cluster.spec.pools)
        counts = CStorPoolClusterStatus(desired_instances=count, provisioned_instances=count, healthy_instances=count)
        if cluster.status != counts:
            await self._store.update(replace(cluster, status=counts))


def clusters_of(obj: CStorPoolInstance | BlockDeviceClaim) -> list[Request]:
    name = obj.metadata.labels.get(POOL_CLUSTER_LABEL, "")
    return [Request(obj.metadata.namespace, name)] if name else []
