"""What `qm volume unmount --gone` does: the mounts of a host that will not come back no longer count.

A host speaks for itself only, so this takes the rights of an administrator. It needs no leader.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import click

from quartermaster.cli.hearing import last_heard
from quartermaster.cli.mounting import Here, absolute, here, is_meant, is_path
from quartermaster.cli.session import Session
from quartermaster.planning.health import READY
from quartermaster.provisioning.asking import mounts_of_host
from quartermaster.provisioning.protocol import mounts_of, with_mounts, without_finalizer
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.marks import MOUNT_FINALIZER
from quartermaster.resources.mounts import Mount
from quartermaster.resources.orchestration import Host
from quartermaster.stores import Store, modify
from quartermaster.support.errors import ConflictError, ForbiddenError, NotFoundError


async def give_up(session: Session, what: str, host: str) -> None:
    async with session.store() as store:
        session.name_store(store)
        claims = session.namespace(store)
        place = Here(host, here("").namespace or claims)
        try:
            paths = await _give_up(store, place, what, claims)
        except ForbiddenError as error:
            raise ForbiddenError(
                f"cannot give up the mounts of {host}: whoever asks may not speak for another host",
                hint="run it where `qm up` made the cluster, or with the store of an administrator",
            ) from error
    for path in paths:
        click.echo(f"{path} on {host} given up")
    if not paths:
        click.echo(f"{what} is not mounted on {host}", err=True)


async def _give_up(store: Store, place: Here, what: str, claims: str) -> list[str]:
    await _refuse_living(store, place)
    volumes = await _volumes(store, what, claims)  # first: a claim that waits for this goes with its last mount
    meant = [one for one in await mounts_of_host(store, place.namespace, place.host) if is_meant(one, what, claims)]
    given_up = dict.fromkeys(mount.spec.path for mount in meant)
    for mount in meant:
        await _remove(store, mount)
    for volume in volumes:
        noted = mounts_of(volume).get(place.host, ())
        dropped = [path for path in noted if not is_path(what) or path == str(absolute(what))]
        if dropped:
            if not meant:  # else the leader wrote it there from what was just given up, perhaps of some moments ago
                given_up.update(dict.fromkeys(dropped))
            struck_out = partial(_without, host=place.host, gone=dropped)
            with suppress(NotFoundError):
                await modify(store, PersistentVolume, volume.metadata.name, "", struck_out)
    return list(given_up)


async def _refuse_living(store: Store, place: Here) -> None:
    found = (await store.list(Host, place.namespace, fields=f"metadata.name={place.host}")).items
    if found and found[0].status.state == READY:
        raise ConflictError(
            f"cannot give up the mounts of {place.host}: it lives "
            f"({await last_heard(store, place.namespace, place.host)})",
            hint="run `qm volume unmount` there, without --gone",
        )


async def _remove(store: Store, mount: Mount) -> None:
    meta = mount.metadata
    try:
        await store.delete(Mount, meta.name, meta.namespace, uid=meta.uid)
        await modify(store, Mount, meta.name, meta.namespace, lambda one: without_finalizer(one, MOUNT_FINALIZER))
    except NotFoundError:
        return


async def _volumes(store: Store, what: str, claims: str) -> list[PersistentVolume]:
    if is_path(what):
        return list((await store.list(PersistentVolume)).items)
    claim = await store.get(PersistentVolumeClaim, what, claims)
    return [await store.get(PersistentVolume, claim.spec.volume_name)] if claim.spec.volume_name else []


def _without(volume: PersistentVolume, *, host: str, gone: list[str]) -> PersistentVolume:
    mounts = mounts_of(volume)
    left = tuple(path for path in mounts.get(host, ()) if path not in gone)
    return with_mounts(volume, {**mounts, host: left})
