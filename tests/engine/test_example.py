"""examples/01-a-reconciler does what its README shows, and ends cleanly."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-a-reconciler"


@pytest.mark.slow
async def test_the_first_example_prints_what_its_readme_shows_and_ends_on_an_interrupt() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLE / "reconciler.py"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    async with asyncio.timeout(30):
        line = (await program.stdout.readline()).decode()
        program.send_signal(signal.SIGINT)
        _, errors = await program.communicate()
    assert line == "default/rack-1-a: example.com/devices=2\n"
    assert line in (EXAMPLE / "README.md").read_text()
    assert (program.returncode, errors) == (0, b"")
