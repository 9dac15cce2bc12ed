"""A claim's volume on this host: ask the leader for it, mount it when that is granted; and all of it backwards.

What is written down comes before the mount and goes after it, so that a volume that is mounted somewhere is never
deleted by anybody, whichever of the two was interrupted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from quartermaster.backends.base import served_now
from quartermaster.backends.unmounting import says_its_name, unmount_volume
from quartermaster.cli import failures
from quartermaster.cli.progress import Status
from quartermaster.cli.session import Session
from quartermaster.host.mountinfo import Mount as MountPoint
from quartermaster.host.mountinfo import mounted_at
from quartermaster.host.mounts import canonical
from quartermaster.host.places import device_root, host_name, state_directory
from quartermaster.provisioning.asking import Granted, Wish, ask, mounts_of_host, move, withdraw
from quartermaster.provisioning.intent import record_of
from quartermaster.provisioning.protocol import PROVISIONED_BY, type_of
from quartermaster.resources.kubernetes.volumes import PersistentVolume, PersistentVolumeClaim
from quartermaster.resources.mounts import ClaimName, Mount
from quartermaster.resources.storage import StorageStatus
from quartermaster.support.errors import HostError, NotFoundError, QuartermasterError, StoreError, UsageError

if TYPE_CHECKING:
    from quartermaster.backends.base import VolumeDriver
    from quartermaster.host import Host
    from quartermaster.stores import Store

_RELEASE_S = 15.0
_LOCK_S = 60.0


class Here(msgspec.Struct, frozen=True):
    """This host, as its agent calls it, and the namespace that it belongs to; "" where no agent was ever started."""

    host: str
    namespace: str = ""


def here(host: str) -> Here:
    from quartermaster.operators.settings import read_settings

    settings = read_settings(state_directory())
    if settings is None:
        return Here(host or host_name())
    return Here(host or settings.name, settings.namespace)


async def mount_claim(session: Session, claim: str, path: str, *, host: str, timeout_s: float) -> None:
    target, place = absolute(path), here(host)
    async with session.store() as store:
        session.name_store(store)
        wish = Wish(
            namespace=place.namespace or session.namespace(store),
            host=place.host,
            claim=ClaimName(namespace=session.namespace(store), name=claim),
            path=str(target),
        )
        machine = this_machine()
        async with machine.locks.hold(lock_of(wish.name), timeout_s=timeout_s):
            with Status(f"waiting for {claim}") as status:
                granted = await ask(store, wish, timeout_s=timeout_s, tell=status.show)
            used = await _mount(store, machine, granted, target)
    if used != target:
        note = f"nothing is mounted at {target}: without root, the volume is used where it is"
        click.echo(click.style(note, dim=True), err=True)
    click.echo(str(used))


async def _mount(store: Store, machine: Host, granted: Granted, target: Path) -> Path:
    """The path to use. A wish that comes to nothing is taken back."""
    volume = None
    try:
        volume = await store.get(PersistentVolume, granted.mount.status.volume)
        driver = driver_of(volume)
        served = served_now(driver, volume, await status_of(store, volume))
        used = await driver.mount(machine, served, target)
    except BaseException:
        if not granted.before and (volume is None or not _may_be_mounted(machine, volume, target)):
            await withdraw(store, granted.mount, timeout_s=_RELEASE_S)
        raise
    if used != target:
        await move(store, granted.mount, str(used))
    return used


async def status_of(store: Store, volume: PersistentVolume) -> StorageStatus | None:
    """What its cluster says of itself, also while nobody leads; None where that is not there or not to be read: the
    volume says of itself where it was made, which mostly is where it is.
    """
    record = record_of(volume)
    if record is None:
        return None
    try:
        return await store.get(StorageStatus, record.cluster.status_name, record.cluster.namespace)
    except StoreError:
        return None


def _may_be_mounted(machine: Host, volume: PersistentVolume, target: Path) -> bool:
    """In doubt it is: what is written down protects it. What else is mounted there is nothing of it."""
    try:
        return driver_of(volume).is_mounted(machine, volume, target)
    except QuartermasterError:
        return _present(machine, target) is not None


async def unmount_path_or_claim(session: Session, what: str, *, host: str) -> int:
    """The exit code. One path that resists does not keep the others."""
    place = here(host)
    async with session.store() as store:
        session.name_store(store)
        namespace = session.namespace(store)
        found = await _wishes(store, Here(place.host, place.namespace or namespace), namespace, what)
        machine, failed = this_machine(), []
        for mount in found:
            try:
                async with machine.locks.hold(lock_of(mount.metadata.name), timeout_s=_LOCK_S):
                    await _unmount(store, machine, mount)
            except QuartermasterError as error:
                failed.append(error)
        if not found:
            if not is_path(what):
                await store.get(PersistentVolumeClaim, what, namespace)
            click.echo(f"{what} is not mounted on {place.host}", err=True)
    return max((failures.report(error) for error in failed), default=0)


def lock_of(mount: str) -> str:
    """A wish that one command is about to use must not be taken back by another."""
    return f"mount-{mount}"


async def _unmount(store: Store, machine: Host, mount: Mount) -> None:
    """What was used where it is has no mount; after a reboot others have none, and somebody else may have one there."""
    path, name = Path(mount.spec.path), mount.spec.claim.name
    present = _present(machine, path)
    unmounted = present is not None and bool(mount.status.volume) and await _take_off(store, machine, mount, present)
    left = await withdraw(store, mount, timeout_s=_RELEASE_S)
    click.echo(f"{path} {'unmounted' if unmounted else 'released'}")
    if present is not None and not unmounted:
        note = f"{name} was not mounted there; what is mounted there, {present.source} ({present.type}), was left alone"
        click.echo(click.style(note, dim=True), err=True)
    if left:
        note = f"{name} counts as mounted until a leader has seen this: {left}"
        click.echo(click.style(note, dim=True), err=True)


async def _take_off(store: Store, machine: Host, mount: Mount, present: MountPoint) -> bool:
    path, name = Path(mount.spec.path), mount.status.volume
    try:
        volume = await store.get(PersistentVolume, name)
    except NotFoundError:
        if await unmount_volume(machine, name, path, says_its_name(name)):
            return True
        raise HostError(
            f"cannot unmount {path}: its volume {name} is gone, and nobody can tell whether {present.source}"
            f" ({present.type}), which is mounted there, is it",
            hint=f"look what it is; after `umount {path}` the same command goes on; nothing was changed",
        ) from None
    return await driver_of(volume).unmount(machine, volume, path)


async def _wishes(store: Store, place: Here, namespace: str, what: str) -> list[Mount]:
    """What the host has or wants, by path or by claim."""
    mounts = await mounts_of_host(store, place.namespace, place.host)
    return [mount for mount in mounts if is_meant(mount, what, namespace)]


def is_meant(mount: Mount, what: str, namespace: str) -> bool:
    if is_path(what):
        return mount.spec.path == str(absolute(what))
    return mount.spec.claim == ClaimName(namespace=namespace, name=what)


def is_path(what: str) -> bool:
    return "/" in what


def absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


def _present(machine: Host, path: Path) -> MountPoint | None:
    table = machine.mounts.table()
    return mounted_at(table, canonical(table, str(path)))


def driver_of(volume: PersistentVolume) -> VolumeDriver:
    from quartermaster.backends.registry import backend_of

    maker = volume.metadata.annotations.get(PROVISIONED_BY, "")
    name = type_of(maker)
    if not name:
        raise UsageError(
            f"cannot mount the volume {volume.metadata.name}: {maker or 'nobody that is known'} made it",
            hint="only volumes of a StorageClass of quartermaster can be mounted by this command",
        )
    return backend_of(name).volumes()


def this_machine() -> Host:
    from quartermaster.host import open_host

    return open_host(state_directory(), device_root=device_root())
