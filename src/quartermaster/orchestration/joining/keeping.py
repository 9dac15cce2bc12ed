"""What keeps a host's own member of etcd going when nothing else does, because everything else needs etcd.

After a boot no agent can read what it should run before the members run; in a full database no lease can be renewed,
so nobody leads who could make room; and when all members that a host knew are gone, only its own can tell it where the
others are. All of it is done here, from the host's own files; and what a former member left goes when it is old.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from quartermaster.backends.etcd.agent import start_member
from quartermaster.backends.etcd.maintenance import cure
from quartermaster.backends.etcd.member import LocalMember
from quartermaster.host import Host
from quartermaster.orchestration.joining.access import read_access, with_endpoints
from quartermaster.orchestration.joining.remains import discard_old
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import QuartermasterError, StoreError
from quartermaster.support.log import logger

LOOK_S = 3.0
CURE_S = 10.0
_RESTART = Backoff(first_s=1.0, limit_s=60.0)

_log = logger("orchestration.joining")


async def keep_member(directory: Path, machine: Host, *, look_s: float = LOOK_S, cure_s: float = CURE_S) -> None:
    """Ends by being cancelled. A host without a member costs a look at a file now and then."""
    local = LocalMember(directory)
    loop = asyncio.get_running_loop()
    starts, cure_at = 0, loop.time() + cure_s
    while True:
        pause_s = look_s
        try:
            if await start_member(local, machine):
                _log.info("the member of etcd on this host was started")
                pause_s, starts = max(look_s, _RESTART.delay_s(starts)), starts + 1
            else:
                starts = 0
        except QuartermasterError as error:
            _log.warning("the member of etcd on this host does not start", error=str(error))
            pause_s, starts = max(look_s, _RESTART.delay_s(starts)), starts + 1
        if loop.time() >= cure_at:
            await _learn_endpoints(directory, local)
            await _make_room(directory)
            _tidy(directory)
            cure_at = loop.time() + cure_s
        await asyncio.sleep(pause_s)


async def _learn_endpoints(directory: Path, local: LocalMember) -> None:
    """What the host's own member says goes into the file that every connection of the host reads."""
    try:
        access, config = read_access(directory), local.read()
        if access is None or config is None:
            return
        from quartermaster.backends.etcd.client import endpoints_known_to
        from quartermaster.stores.kv.etcd.settings import parse

        with_endpoints(access, await endpoints_known_to(parse(access.url, {}), config.client_url))
    except QuartermasterError as error:
        _log.warning("cannot ask the member on this host for the others", error=str(error))


def _tidy(directory: Path) -> None:
    try:
        access = read_access(directory)
        discard_old(directory, may_lead=access is not None and access.may_lead)
    except (QuartermasterError, OSError) as error:
        _log.warning("cannot remove what is left of a former member of etcd", error=str(error))


async def _make_room(directory: Path) -> None:
    """Only where this host may lead. Two that do it at once do what is harmless twice."""
    try:
        access = read_access(directory)
        if access is None or not access.leader_url:
            return
        from quartermaster.backends.etcd.client import EtcdClient
        from quartermaster.stores.kv.etcd.settings import parse

        tool = EtcdClient(parse(access.leader_url, {}, deadline_s=5.0))
    except QuartermasterError as error:
        _log.warning("cannot look whether etcd is full", error=str(error))
        return
    try:
        members = await tool.members()
        await cure(tool, [url for member in members if not member.learner for url in member.client_urls])
    except (StoreError, TimeoutError) as error:
        _log.info("cannot look whether etcd is full", error=str(error))
    finally:
        await tool.close()
