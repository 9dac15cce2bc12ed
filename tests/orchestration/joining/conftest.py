"""etcd of the version that the tests are written for comes first on the PATH."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.testing.servers import OLDEST_ETCD, find_etcd, find_program

from .hosts import FLAGS, SETTINGS, Cluster, cluster


@pytest.fixture
def etcd_program(monkeypatch: pytest.MonkeyPatch) -> Path:
    program = find_program("etcd")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
async def etcd_hosts(tmp_path: Path, etcd_program: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def etcd_oldest_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """With the etcd of the Debian package, which is what `install the package etcd-server` gives."""
    program = find_etcd("etcd", OLDEST_ETCD)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    async with cluster(tmp_path) as made:
        made.settings = replace(SETTINGS, flags=tuple(flag for flag in FLAGS if flag != "--unsafe-no-fsync"))
        yield made
