"""What glusterd is started with, and from when on that holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.backends.glusterfs.daemon import settings_text

from .modelled import Cluster


@pytest.mark.parametrize("address", ["", "192.0.2.1"])
def test_a_host_that_is_cut_off_while_it_is_asked_something_is_given_up_within_seconds(address: str) -> None:
    """Keeping a connection alive ends none on which something was sent: such a question would hang for ten minutes."""
    lines = settings_text(Path("/var/lib/agent"), address).splitlines()
    words = [line.split() for line in lines]
    found = [int(line[2]) for line in words if line[:2] == ["option", "transport.tcp-user-timeout"]]
    assert found == [12]


async def test_a_glusterd_has_new_settings_when_it_is_started_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.begin()
    settings = next(tmp_path.glob("h1/**/glusterd.vol"))
    now = settings.read_text()
    settings.write_text("as an earlier version wrote it")
    await cluster.rounds(2)
    assert settings.read_text() == "as an earlier version wrote it"
    cluster.bench.machines["h1"].processes.clear()
    await cluster.rounds(2)
    assert settings.read_text() == now
