"""What happens on a host: disks get a file system and are mounted, and volumes are directories on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from quartermaster.backends.base import AgentContext
from quartermaster.backends.filesystems import offer_file_systems, refuse_unmounted, release_file_systems, uuids_of
from quartermaster.host import FileSystem


class NodeAgent:
    name = "local"

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    def file_systems(self, desired: Mapping[str, Any]) -> Sequence[str]:
        return uuids_of(desired)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        return await offer_file_systems(
            context, file_system=FileSystem.EXT4, label="qm-local", volumes=volumes_here(context)
        )

    async def destroy_local_service(self, context: AgentContext) -> None:
        await release_file_systems(context, volumes=volumes_here(context))


def volumes_here(context: AgentContext) -> list[str]:
    return [os.readlink(link) for link in sorted((context.directory.parent / VolumeAgent.name).glob("*"))]


class VolumeAgent:
    """Keeps a link to each volume by its name: who asks for its end does not say where it is."""

    name = "local-volume"

    async def initialize(self, context: AgentContext) -> None:
        context.directory.mkdir(parents=True, exist_ok=True)

    async def configure_local_service(self, context: AgentContext) -> dict[str, Any]:
        path = context.desired["path"]
        await refuse_unmounted(context, path)
        with suppress(FileExistsError):
            os.symlink(path, context.directory / context.instance)
        await context.machine.directories.ensure(path)
        return {"path": path}

    async def destroy_local_service(self, context: AgentContext) -> None:
        link = context.directory / context.instance
        if link.is_symlink():
            await refuse_unmounted(context, os.readlink(link))
            await context.machine.directories.remove(os.readlink(link))
            link.unlink()
