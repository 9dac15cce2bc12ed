"""What every test of a store has."""

from collections.abc import Iterator

import pytest

from quartermaster.support import log


@pytest.fixture(autouse=True)
def fresh_log() -> Iterator[None]:
    """The log goes to the standard error of this test, which pytest closes afterwards."""
    log.configure()
    yield
    log.configure()
