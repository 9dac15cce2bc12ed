"""What happens on a host: disks get a file system and are mounted, and volumes are directories on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import make_volume, remove_dropped, remove_volume, volumes_in
from quartermaster.backends.filesystems import Volumes, offer_file_systems, release_file_systems, uuids_of
from quartermaster.host import FileSystem


class NodeAgent:
    name = "local"

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    def file_systems(self, desired: Mapping[str, Any]) -> Sequence[str]:
        return uuids_of(desired)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        offer = await offer_file_systems(
            context, file_system=FileSystem.EXT4, label="qm-local", volumes=volumes_here(context), measured=True
        )
        await remove_dropped(context, _volumes_of(context), [base["path"] for base in offer["bases"]])
        return offer

    async def destroy_local_service(self, context: AgentContext) -> None:
        await release_file_systems(context, volumes=volumes_here(context))


def volumes_here(context: AgentContext) -> Volumes:
    return partial(volumes_in, _volumes_of(context))


def _volumes_of(context: AgentContext) -> Path:
    return context.directory.parent / VolumeAgent.name


class VolumeAgent:
    name = "local-volume"

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        await make_volume(context, context.desired["path"])
        return {"path": context.desired["path"]}

    async def destroy_local_service(self, context: AgentContext) -> None:
        await remove_volume(context)
