"""What a glusterd has started and leaves running at its end: bricks, and the daemons that heal and count.

A host that was cut off and given up is back with all of them, and nobody else ends them. A brick serves on as long as
the pool has it, for it may be the only whole copy. What is in it stays on its disk.
"""

from __future__ import annotations

from collections.abc import Collection

from quartermaster.backends.base import AgentContext
from quartermaster.backends.glusterfs.asking import Members
from quartermaster.backends.glusterfs.processes import BRICK, COUNTS, HEALS, PROGRAMS, kind_of, name_of, uuid_of
from quartermaster.host.programs import Program
from quartermaster.support.errors import HostError


async def end_what_ran(context: AgentContext, ended: Collection[str]) -> None:
    """`ended` are the UUIDs of our glusterds that have ended here. HostError while the pool has such a brick."""
    if not ended:
        return
    programs = context.machine.programs
    found, members = await programs.running(*PROGRAMS), Members(context)
    kept: list[str] = []
    for brick in [one for one in found if kind_of(one) == BRICK and uuid_of(one) in ended]:
        if await _is_in_pool(members, brick):
            kept.append(name_of(brick))
        else:
            await programs.end(brick)
    if kept:
        raise HostError(
            f"cannot end the brick {kept[0]}: the pool has it still",
            hint="it serves until another one has its place; look at the StorageStatus for what that waits for",
        )
    for one in found:
        if kind_of(one) == COUNTS or (kind_of(one) == HEALS and uuid_of(one) in ended):
            await programs.end(one)


async def _is_in_pool(members: Members, brick: Program) -> bool | None:
    path, volume = brick.after("--brick-name"), brick.after("--volfile-id").partition(".")[0]
    try:
        return await members.have_brick(volume, path, uuid_of(brick), alone=True)
    except HostError as error:
        raise HostError(f"cannot end the brick {name_of(brick)}: {error}") from error
