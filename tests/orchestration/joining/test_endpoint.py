"""The endpoint for hosts that join, when the right to lead goes away under it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quartermaster.backends.etcd.fake import FakeUsers
from quartermaster.engine.runtime import Runtime
from quartermaster.orchestration.joining import endpoint as module
from quartermaster.orchestration.joining.authority import Authority
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.endpoint import JoinEndpoint
from quartermaster.orchestration.joining.profiles import profile_of
from quartermaster.stores.kv.memory import MemoryKeyValue
from quartermaster.stores.objects import ObjectStore
from quartermaster.support import clock
from quartermaster.support.tasks import TaskGroup

from .hosts import until


@pytest.fixture
def files(tmp_path: Path) -> HostCertificates:
    made, authority = HostCertificates(tmp_path), Authority.create(now=clock.wall_time())
    made.write_authority(authority.certificate)
    profile = profile_of("leader", "h1", ["127.0.0.1"], member="etcd-1")
    made.install("leader", authority.sign(made.request("leader"), profile, now=clock.wall_time()), profile.digest)
    return made


async def test_it_ends_quietly_when_the_certificate_of_the_leader_is_gone(
    files: HostCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RELOAD_S", 0.02)
    runtime = Runtime(ObjectStore(MemoryKeyValue()))
    endpoint = JoinEndpoint(files.directory, FakeUsers, namespace="default", address="127.0.0.1", port=0)
    runtime.add(endpoint)
    async with asyncio.timeout(20), TaskGroup() as group:
        running = group.start(runtime.run())
        await until(lambda: endpoint.port)
        files.discard("leader")
        await asyncio.sleep(0.1)
        assert not running.done()
        runtime.stop()
        await running
