"""The chain and its workflows on a real API server with a real controller manager, which binds claims and collects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from quartermaster.backends.cstor import HOOKS
from quartermaster.backends.cstor.contract import World, check
from quartermaster.backends.cstor.hooks import ATTACHMENT_FINALIZER
from quartermaster.backends.cstor.inventory import Inventory
from quartermaster.backends.cstor.reasons import READY
from quartermaster.hooks import hook_controllers
from quartermaster.hooks.conformance import hands
from quartermaster.hooks.conformance.scenarios import SCENARIOS, clean_up
from quartermaster.hooks.conformance.site import Site
from quartermaster.resources import (
    ConfigMap,
    CStorClusterStorageSet,
    Node,
    ObjectMeta,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    VolumeAttachment,
    to_document,
)
from quartermaster.resources.openebs import OPENEBS_NAMESPACE, BlockDevice, BlockDeviceClaim
from quartermaster.stores.base import Store
from quartermaster.stores.kubernetes import KubernetesStore
from quartermaster.support import entropy
from quartermaster.support.errors import QuartermasterError
from quartermaster.testing.servers import KubernetesServer

from .crds import manifests
from .further import FURTHER
from .standins import IMMEDIATE, WAITING, standins
from .standins.disks import ATTACHER_FINALIZER
from .world import NAMESPACE, prepare, running, site

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

ServerFactory = Callable[..., Awaitable[KubernetesServer]]
PATIENCE_S = 100.0


@asynccontextmanager
async def cluster(start: ServerFactory, directory: Path) -> AsyncIterator[tuple[KubernetesServer, Store]]:
    """A real server with the stand-ins, and nobody who asks them for what OpenEBS refuses."""
    server = await start(controller_manager=True, manifests=manifests(directory))
    store = await KubernetesStore.open(kubeconfig=server.kubeconfig)
    refused: list[str] = []
    try:
        await prepare(store)
        async with running(store, services=standins(binds=False, refused=refused)):
            yield server, store
    finally:
        await store.close()
    assert refused == []


async def problems_of(place: Site) -> list[str]:
    """What OpenEBS would say of the pool cluster that was applied."""
    store = place.store
    devices = (await store.list(BlockDevice, OPENEBS_NAMESPACE)).items
    claims = (await store.list(BlockDeviceClaim, OPENEBS_NAMESPACE)).items
    inventory = Inventory([*(await store.list(Node)).items, *devices])
    world = World(inventory, OPENEBS_NAMESPACE, {claim.spec.block_device_name: claim for claim in claims})
    return [str(problem) for problem in check(await place.pool_cluster(), None, world)]


async def uids_and_annotations(place: Site) -> None:
    """Each object names the uid of the one that it is there for, as the seed has it."""
    store, plan, config = place.store, await place.plan(), await place.read()
    assert plan.metadata.annotations["dao.mayadata.io/cstorclusterconfig-uid"] == config.metadata.uid
    storages = await place.storages()
    sets = {found.metadata.uid: found for found in (await store.list(CStorClusterStorageSet, NAMESPACE)).items}
    for storage in storages:
        owner = sets[storage.metadata.annotations["dao.mayadata.io/cstorclusterstorageset-uid"]]
        assert owner.metadata.annotations["dao.mayadata.io/cstorclusterplan-uid"] == plan.metadata.uid
        assert owner.metadata.name.startswith("ccplan-")
        assert storage.metadata.name.startswith("ccsset-")
        assert storage.spec.node_name == owner.spec.node.name
        claim = await store.get(PersistentVolumeClaim, storage.status.persistent_volume_claim, NAMESPACE)
        assert claim.metadata.annotations["dao.mayadata.io/storage-uid"] == storage.metadata.uid
        assert claim.status.phase == "Bound"
        attachment = await store.get(VolumeAttachment, storage.status.volume_attachment)
        assert attachment.metadata.owner_references == ()
        assert not attachment.metadata.name.startswith("csi-")
        assert set(attachment.metadata.finalizers) == {ATTACHMENT_FINALIZER, ATTACHER_FINALIZER}


def document(place: Site) -> str:
    """The config as a person would write it; kubectl applies it."""
    return json.dumps(to_document(place.config(least=2, raid="mirror", disks=2)))


@pytest.mark.timeout(300)
async def test_a_config_applied_with_kubectl_becomes_pools_and_a_new_controller_manager_deletes_nothing(
    kubernetes_throwaway: ServerFactory, tmp_path: Path
) -> None:
    async with cluster(kubernetes_throwaway, tmp_path) as (server, store):
        places = [site(store, name, name, timeout_s=PATIENCE_S) for name in (IMMEDIATE, WAITING)]
        for place in places:
            await hands.take_nodes(place, "n1", "n2", "n3")
        async with running(store, services=hook_controllers(HOOKS)):
            for place in places:
                await server.kubectl("apply", "-f", "-", stdin=document(place))
            await asyncio.gather(*(half_way(place) for place in places))
            await server.restart_controller_manager()
            for place in places:
                await place.phase(READY)
                await uids_and_annotations(place)
                assert await problems_of(place) == []
            before = await everything(store)
            await server.restart_controller_manager()
            await at_work(places[0])
            assert await everything(store) == before
            shown = await server.kubectl("get", "cscconfig", "-n", NAMESPACE)
    header, *rows = (line.split() for line in shown.splitlines())
    assert header == ["NAME", "WANTED", "READY", "CAPACITY", "PHASE", "MESSAGE", "AGE"]
    assert [row[:5] for row in rows] == [[name, "2", "2", "40Gi", "Ready"] for name in (IMMEDIATE, WAITING)]


async def at_work(place: Site) -> None:
    """The controller manager collects again what really is garbage."""
    nobody = OwnerReference(api_version="v1", kind="ConfigMap", name="nobody", uid=entropy.new_uid())
    metadata = ObjectMeta(name="garbage", namespace=NAMESPACE, owner_references=(nobody,))
    await place.store.create(ConfigMap(metadata=metadata))
    await place.eventually(lambda: place.gone(ConfigMap, "garbage", NAMESPACE), "end of what nobody owns")


async def half_way(place: Site) -> None:
    """Some claim is bound and some volume attached."""

    async def attached() -> bool:
        return any(storage.status.attached_to for storage in await place.storages())

    await place.eventually(attached, "volume that is attached")


async def everything(store: Store) -> dict[str, str]:
    """What the controller manager might take for garbage, by name, with the uid."""
    found: dict[str, str] = {}
    kinds: tuple[Any, ...] = (
        CStorClusterStorageSet,
        Storage,
        PersistentVolumeClaim,
        PersistentVolume,
        VolumeAttachment,
    )
    for kind in (*kinds, BlockDevice, BlockDeviceClaim):
        found |= {f"{kind.__name__} {obj.key}": obj.metadata.uid for obj in (await store.list(kind)).items}
    return found


WORKFLOWS = {**{name: scenario.drive for name, scenario in SCENARIOS.items()}, **FURTHER}
PARTS = 3  # each with a server of its own, so that several workers can share them


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", [sorted(WORKFLOWS)[part::PARTS] for part in range(PARTS)], ids="+".join)
async def test_workflows_on_a_real_server_side_by_side(
    kubernetes_throwaway: ServerFactory, tmp_path: Path, names: list[str]
) -> None:
    failed: dict[str, str] = {}

    async def drive(store: Store, name: str) -> None:
        place = site(store, name, IMMEDIATE, timeout_s=PATIENCE_S)
        try:
            await WORKFLOWS[name](place)
            await clean_up(place)
        except QuartermasterError as error:
            failed[name] = str(error)

    async with (
        cluster(kubernetes_throwaway, tmp_path) as (_, store),
        running(store, services=hook_controllers(HOOKS)),
    ):
        await asyncio.gather(*(drive(store, name) for name in names))
        assert failed == {}

        async def nothing_left() -> bool:
            return await everything(store) == {}

        await site(store, "end", IMMEDIATE, timeout_s=PATIENCE_S).eventually(nothing_left, "end of all disks")
