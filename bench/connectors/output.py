"""What a program prints, when it has ended well and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.running import BenchFailedError

_SHOWN_CHARACTERS = 3000


async def output_of(
    argv: Sequence[str], *, what: str, timeout_s: float, cwd: Path, environment: Mapping[str, str]
) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=dict(environment),
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        raise BenchFailedError(f"{what} takes longer than {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise BenchFailedError(f"{what} fails: {(output + errors).decode(errors='replace')[-_SHOWN_CHARACTERS:]}")
    return output
