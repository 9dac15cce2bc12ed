"""What `qm delete --force` does with a volume: it is marked, and goes although somebody uses it."""

from __future__ import annotations

from contextlib import suppress

from quartermaster.provisioning.protocol import PROVISIONED_BY, type_of, with_annotations
from quartermaster.resources import Object
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import DELETE_IN_USE
from quartermaster.stores import Store, modify
from quartermaster.support.errors import NotFoundError


async def let_go_in_use(store: Store, kind: type[Object], name: str, namespace: str) -> None:
    """Of a volume, or the volume of a claim. What another program made is left as it is."""
    with suppress(NotFoundError):
        if kind is PersistentVolumeClaim:
            name = (await store.get(PersistentVolumeClaim, name, namespace)).spec.volume_name
        elif kind is not PersistentVolume:
            return
        if name:
            await modify(store, PersistentVolume, name, "", _marked)


def _marked(volume: PersistentVolume) -> PersistentVolume:
    ours = type_of(volume.metadata.annotations.get(PROVISIONED_BY, ""))
    return with_annotations(volume, {DELETE_IN_USE: "true"}) if ours else volume
