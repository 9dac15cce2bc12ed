"""What the tests on this machine's own kernel share."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def image(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A blank file, of the module's SIZE."""
    file = tmp_path / "disk.img"
    file.touch()
    os.truncate(file, request.module.SIZE)
    return file
