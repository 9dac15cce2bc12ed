"""The controller logs what it survives; here that is expected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quartermaster.support import log


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log.configure(verbosity=-1)
    yield
    log.configure()
