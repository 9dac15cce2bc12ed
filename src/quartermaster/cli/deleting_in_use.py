"""What `qm delete --force` does with a volume: it is marked, and goes although somebody uses it."""

from __future__ import annotations

from contextlib import suppress

from quartermaster.provisioning.protocol import PROVISIONED_BY, type_of
from quartermaster.provisioning.volumes import going_in_use
from quartermaster.resources import Object
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.stores import Store, modify
from quartermaster.support.errors import NotFoundError


async def let_go_in_use(store: Store, kind: type[Object], name: str, namespace: str, uid: str) -> None:
    """Of a volume, or the volume of a claim. What another program made is left as it is, and so is what has taken the
    place of what was meant.
    """
    if kind is PersistentVolumeClaim or kind is PersistentVolume:
        with suppress(NotFoundError):
            found = await store.get(kind, name, namespace)
            if uid not in ("", found.metadata.uid):
                return
            volume = found.spec.volume_name if isinstance(found, PersistentVolumeClaim) else name
            if volume:
                await modify(store, PersistentVolume, volume, "", _marked)


def _marked(volume: PersistentVolume) -> PersistentVolume:
    return going_in_use(volume) if type_of(volume.metadata.annotations.get(PROVISIONED_BY, "")) else volume
