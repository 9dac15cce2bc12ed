"""A standalone cluster on virtual hosts for GlusterFS, with a fourth host to spare."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quartermaster.testing.lab import Lab
from tests.cluster.sites import Standalone


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Standalone]:
    lab = await Lab.create(tmp_path / "lab", hosts=4, disks=1, disk_size="1Gi", name="gluster")
    async with lab:
        made = Standalone(lab)
        await made.bring_up(3)
        yield made
