"""The agent's side of `planning.offering`: devices get a file system of ours, are mounted, and are measured.

A consent to wipe is used once. What is about to be lost is written down first; a second run may finish the same wipe,
and nothing else. A device that carries the wanted file system already is never wiped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import alone_with, mark_away, mark_back, mounts_below, offer_base
from quartermaster.host import FileSystem, Format, MountState
from quartermaster.host.devices.model import Device, Signature
from quartermaster.host.directories import Space
from quartermaster.host.files import write_whole
from quartermaster.host.mountinfo import mounted_at
from quartermaster.support.errors import DeviceRefusedError, HostError

Volumes = Callable[[], Sequence[str]]
"""Looks which are here: their paths."""


async def offer_file_systems(
    context: AgentContext,
    *,
    file_system: FileSystem,
    label: str,
    volumes: Volumes = tuple,
    measured: bool = False,
    taken: bool = True,
) -> dict[str, Any]:
    """Makes `context.desired` true; the answer is what `planning.offering.bases_of` reads.

    What `volumes` are on is not given up. `measured`: what is free counts, and on the file systems of directories what
    is there beside volumes, for nobody else looks at it. `taken`: directories are taken for volumes at once; else by
    the caller, who looks first whose they are.
    """
    mounted = {str(mount_target(context, entry)): entry for entry in context.desired.get("devices", ())}
    wiped: list[str] = []
    bases: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    try:
        await _unmount(context, list(mounted), volumes)
    except HostError as error:
        failed[""] = str(error)
    counted: set[int] = set()
    for path in (*context.desired.get("directories", ()), *mounted):
        entry = mounted.get(path)
        try:
            if entry is not None:
                entry = {**entry, "path": await _path_now(context, entry)}
                if entry.get("wipe"):
                    await _wipe(context, entry)
                wanted = Format(file_system, entry["uuid"], label)
                note = context.directory / f"making-{entry['uuid']}"
                await context.machine.formatting.format(entry["path"], wanted, identity=entry["id"], note=note)
                wiped += _settle_consent(context, entry)
                await context.machine.mounts.mount(entry["path"], path, type=str(file_system), protect=True)
                await _refuse_dead(context, entry["path"], path)
                mark_back(Path(path))
            space = await context.machine.directories.space(path)
            if entry is None and taken:
                await offer_base(context, path, space.file_system)
        except HostError as error:  # one broken disk does not cost the host its others
            failed[entry["path"] if entry is not None else path] = str(error)
            if mounted_at(context.machine.mounts.table(), path) is not None and entry is not None:
                mark_away(Path(path), str(error))
            continue
        # Two directories of one file system share its room.
        base = {"path": path, "total": 0 if space.file_system in counted else space.total}
        if measured:
            base |= (
                shared_space(context, path, space, volumes())
                if entry is None
                else {"free": _in_steps(space.available, space)}
            )
        bases.append(base)
        counted.add(space.file_system)
    if failed and not bases:
        raise HostError("; ".join(failed.values()))
    return {"bases": bases, "wiped": wiped, "failed": failed}


def shared_space(context: AgentContext, path: str, space: Space, volumes: Sequence[str]) -> dict[str, int]:
    """What is free in a directory that others use too, and what they have taken: known for sure only while no volume of
    ours is in it, and then kept.
    """
    taken = _in_steps(max(0, space.total - space.available), space)
    if any(volume.startswith(f"{path}/") for volume in volumes):
        taken = min(taken, _bases_before(context).get(path, {}).get("taken", 0))
    return {"free": _in_steps(space.available, space), "taken": taken}


def _in_steps(size: int, space: Space) -> int:
    """Of about a hundredth of the whole, so that not every file of somebody's is a change."""
    step = max(space.total >> 7, 1 << 20)
    return size // step * step


async def release_file_systems(context: AgentContext, *, volumes: Volumes = tuple) -> None:
    """Unmounts what this service has mounted; all content stays."""
    await _unmount(context, (), volumes)
    for path in volumes():
        # They were given up while the host was away, and since it is back nobody has mounted their disk.
        if path.startswith(_mounts_of(context)):
            mark_away(Path(path).parent, "its node was given up")


async def _unmount(context: AgentContext, keep: Sequence[str], volumes: Volumes) -> None:
    """What the leader knew of volumes may have been old when it decided. What is on a disk now is known here."""
    below = _mounts_of(context)
    needed: list[str] = []
    for mount in context.machine.mounts.table():
        if not mount.target.startswith(below) or mount.target in keep:
            continue
        async with alone_with(context, mount.target):
            held = [path for path in volumes() if path.startswith(f"{mount.target}/")]
            if held:
                needed.append(f"cannot give up {mount.source}: the volume {Path(held[0]).name} is on it")
            else:
                await context.machine.mounts.unmount(mount.target, remove=True)
                mark_back(Path(mount.target))
    if needed:
        raise HostError(needed[0], hint="it goes when its volumes are gone")


def mount_target(context: AgentContext, entry: Mapping[str, Any]) -> Path:
    return Path(_mounts_of(context)) / str(entry["uuid"])


def _mounts_of(context: AgentContext) -> str:
    return f"{mounts_below(context.directory, context.instance)}/"


def uuids_of(desired: Mapping[str, Any]) -> list[str]:
    """For `KnowsFileSystems`."""
    return [entry["uuid"] for entry in desired.get("devices", ())]


async def _refuse_dead(context: AgentContext, device: str, path: str) -> None:
    """A disk that does not answer any more stays mounted all the same."""
    health = await context.machine.mounts.health(path)
    if health.state is not MountState.HEALTHY:
        raise HostError(
            f"cannot use {device}: its file system is {health}",
            hint="look at the kernel's log, and replace the disk; what is on it is not touched",
        )


async def _path_now(context: AgentContext, entry: Mapping[str, Any]) -> str:
    """A disk is found by its identity, wherever the kernel has put it since it was assigned.

    One without an identity is known by the file system that was made on it. A blank one in its place is another disk.
    """
    path, identity = str(entry["path"]), entry["id"]

    def is_meant(device: Device) -> bool:
        if identity:
            return bool(device.hardware_identity == identity)
        return any(signature.uuid == entry["uuid"] for signature in device.signatures)

    device = await context.machine.devices.inspect(path)
    if device is not None and is_meant(device):
        return path
    found = next((one.path for one in await context.machine.devices.discover() if is_meant(one)), "")
    if not found and (identity or str(mount_target(context, entry)) in _bases_before(context)):
        missing = f"is {identity}" if identity else f"carries the file system {entry['uuid']}"
        raise HostError(
            f"cannot find the disk that was {path}: none {missing}",
            hint="bring it back, or list its successor: what has copies is made anew, what has none is lost with it",
        )
    return found or path


def _bases_before(context: AgentContext) -> dict[str, dict[str, Any]]:
    """What was offered when its agent last reported, by path."""
    status = context.assignment.status if context.assignment is not None else None
    found = ((status.result if status is not None else None) or {}).get("bases", ())
    return {one["path"]: one for one in found}


class _Mark(msgspec.Struct, frozen=True):
    """A consent that was used for one disk, written down before the wipe; `done` when our file system is on it."""

    consent: str
    found: tuple[Signature, ...]
    done: bool = False


async def _wipe(context: AgentContext, entry: Mapping[str, Any]) -> None:
    """By the consent that the entry carries; a device that carries the wanted file system already is left alone."""
    consent, path, file = str(entry["wipe"]), str(entry["path"]), _mark_file(context, entry)

    async def record(_: Device, found: tuple[Signature, ...]) -> None:
        known = _read_mark(file)
        if known is not None and known.consent == consent:
            if known.done or not all(signature in known.found for signature in found):
                raise DeviceRefusedError(
                    f"cannot wipe {path}: the consent {consent} was used already, and there is something new on it",
                    code="ConsentUsed",
                    hint="a consent is used once; look at the disk, and wipe it by hand if nothing on it is wanted",
                )
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, msgspec.json.encode(_Mark(consent, found)))

    device = await context.machine.devices.inspect(path)
    if device is None or not any(signature.uuid == entry["uuid"] for signature in device.signatures):
        await context.machine.formatting.wipe(path, consent=consent, record=record)


def _settle_consent(context: AgentContext, entry: Mapping[str, Any]) -> list[str]:
    """The consent by which the disk was wiped, whoever asks by now: it may be gone from what is desired already."""
    file = _mark_file(context, entry)
    known = _read_mark(file)
    if known is None:
        return []
    if not known.done:
        write_whole(file, msgspec.json.encode(msgspec.structs.replace(known, done=True)))
    return [known.consent]


def _mark_file(context: AgentContext, entry: Mapping[str, Any]) -> Path:
    return context.directory / f"consent-{entry['uuid']}"


def _read_mark(file: Path) -> _Mark | None:
    return msgspec.json.decode(file.read_bytes(), type=_Mark) if file.exists() else None
