"""A cluster in which cStor clusters live: a store, the stand-ins, and the core, which may die and come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from quartermaster.backends.cstor import HOOKS
from quartermaster.engine import Runtime
from quartermaster.hooks import Caller, hook_controllers
from quartermaster.hooks.conformance.site import Site
from quartermaster.resources import Namespace, ObjectMeta
from quartermaster.resources.agility import ExternalProvisioner
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import OPENEBS_NAMESPACE
from quartermaster.stores.base import Store
from quartermaster.support.errors import AlreadyExistsError
from quartermaster.support.tasks import TaskGroup

from .standins import ATTACHER, Guarded, standins, storage_classes

NAMESPACE = "agility"
WRITES = ("create", "update", "update_status", "apply", "delete")


async def prepare(store: Store) -> None:
    """What an administrator has before the first config: namespaces and classes."""
    wanted: list[Object] = [Namespace(metadata=ObjectMeta(name=name)) for name in (NAMESPACE, OPENEBS_NAMESPACE)]
    for obj in (*wanted, *storage_classes()):
        with suppress(AlreadyExistsError):
            await store.create(obj)


def site(store: Store, name: str, storage_class: str, *, timeout_s: float = 60.0) -> Site:
    provisioner = ExternalProvisioner(csi_attacher_name=ATTACHER, storage_class_name=storage_class)
    return Site(store, name, namespace=NAMESPACE, provisioner=provisioner, timeout_s=timeout_s)


@asynccontextmanager
async def running(store: Store, *, services: tuple[Any, ...]) -> AsyncIterator[Runtime]:
    runtime = Runtime(store, drain_s=1.0)
    for service in services:
        runtime.add(service)
    async with TaskGroup() as group:
        task = group.start(runtime.run(), name="runtime")
        try:
            yield runtime
        finally:
            runtime.stop()
            await asyncio.wait([task], timeout=10)
            group.cancel()


@asynccontextmanager
async def living(store: Store, *, caller: Caller | None = None) -> AsyncIterator[None]:
    """The stand-ins and the core, side by side. The core never asks OpenEBS for what it refuses."""
    await prepare(store)
    refused: list[str] = []
    guarded: Any = Guarded(store, refused)
    async with (
        running(store, services=standins(binds=True, refused=refused)),
        running(guarded, services=hook_controllers(HOOKS, caller=caller)),
    ):
        yield
    assert refused == []
