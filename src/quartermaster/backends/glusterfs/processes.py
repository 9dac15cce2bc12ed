"""What the processes that a glusterd has started say of themselves, in their arguments."""

from __future__ import annotations

from collections.abc import Collection

from quartermaster.backends.base import AgentContext
from quartermaster.host.programs import Program

PROGRAMS = ("glusterfsd", "glusterfs")
BRICK, HEALS, COUNTS = "brick", "glustershd", "quotad"  # as glusterd calls them; mounts have other names
# What says by whose glusterd a process was started; of the one that counts nothing does.
_UUID_OPTIONS = ("*-posix.glusterd-uuid=", "*replicate*.node-uuid=")


def kind_of(program: Program) -> str:
    return program.after("--process-name")


def uuid_of(program: Program) -> str:
    """Of the glusterd that started it; "" where it does not say."""
    found = (word.partition("=")[2] for word in program.arguments if word.startswith(_UUID_OPTIONS))
    return next(found, "")


def name_of(brick: Program) -> str:
    return f"{brick.after('-s')}:{brick.after('--brick-name')}"


async def end_bricks_of(context: AgentContext, volumes: Collection[str], uuid: str) -> None:
    """Of the glusterd with that UUID, which starts them anew."""
    programs = context.machine.programs
    for one in await programs.running(*PROGRAMS):
        if kind_of(one) == BRICK and uuid_of(one) == uuid and one.after("--volfile-id").partition(".")[0] in volumes:
            await programs.end(one)
