"""The agent's note of what a node has offered: one that cannot be read is named, and nothing is taken meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from quartermaster.backends.base import AgentContext
from quartermaster.backends.directories import offer_base
from quartermaster.host.fake import FakeMachine, fake_host
from quartermaster.support.errors import HostError


async def test_a_note_that_was_cut_is_named_with_what_to_do(tmp_path: Path) -> None:
    unused = cast(Any, None)
    context = AgentContext("h1", "default", fake_host(FakeMachine()), tmp_path / "agent", unused, None, unused)
    await context.machine.directories.ensure("/srv/a")
    await offer_base(context, "/srv/a", 1)
    (note,) = context.directory.iterdir()
    note.write_bytes(note.read_bytes()[:3])
    with pytest.raises(HostError) as told:
        await offer_base(context, "/srv/a", 1)
    assert str(note) in told.value.message
    assert "remove it" in told.value.hint
