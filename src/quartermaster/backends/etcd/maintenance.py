"""What keeps etcd small: old revisions are forgotten, freed space is given back, and a full database is cured.

Without a majority nothing of this is done. A full database takes no writes, so nobody can renew a lease and nobody
leads: the cure (`cure`) therefore needs no leader and is run by every host that may lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from quartermaster.backends.etcd.tool import Alarm, EtcdStatus, EtcdTool
from quartermaster.support.log import logger

_log = logger("backends.etcd.maintenance")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    compact_s: float = 300.0  # between two compactions; what is older than two of them is forgotten
    defragment_s: float = 3600.0  # the least time between two of one member
    defragment_from: int = 100 << 20  # bytes that a defragmentation must be able to free
    defragment_share: float = 0.5  # of the file that must be free


class Maintenance:
    """The schedule, in one term of one leader."""

    def __init__(self, tool: EtcdTool, schedule: Schedule | None = None) -> None:
        self._tool = tool
        self._schedule = schedule or Schedule()
        self._compact_at: float | None = None
        self._seen = 0
        self._defragmented: dict[str, float] = {}

    async def refresh(self, client_urls: Sequence[str], *, all_answer: bool) -> None:
        if not await cure(self._tool, client_urls):
            await self._compact()
            if all_answer:  # else it would only wait for who does not
                await self._defragment(client_urls)

    async def _compact(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._compact_at is not None and now < self._compact_at:
            return
        revision = await self._tool.revision()
        if self._seen:
            await self._tool.compact(self._seen)
        self._seen, self._compact_at = revision, now + self._schedule.compact_s

    async def _defragment(self, client_urls: Sequence[str]) -> None:
        """One member in a look, the leader of the members last, and only while all answer."""
        now = asyncio.get_running_loop().time()
        due = [url for url in client_urls if now - self._defragmented.get(url, -1e9) >= self._schedule.defragment_s]
        if not due:
            return
        found = [(url, await self._tool.status(url)) for url in client_urls]
        statuses = {url: status for url, status in found if status is not None}
        if len(statuses) < len(client_urls):
            return
        for url in sorted(due, key=lambda url: statuses[url].leader == statuses[url].id):
            if self._is_worth_it(statuses[url]):
                _log.info("defragmenting etcd", member=url, size=statuses[url].size, in_use=statuses[url].in_use)
                self._defragmented[url] = now
                await self._tool.defragment(url)
                return

    def _is_worth_it(self, status: EtcdStatus) -> bool:
        free = status.size - status.in_use
        return free >= self._schedule.defragment_from and free >= self._schedule.defragment_share * status.size


async def cure(tool: EtcdTool, client_urls: Sequence[str]) -> bool:
    """Make room in a full etcd and switch its alarm off; whether there was one."""
    raised = [one for one in await tool.alarms() if one.alarm is Alarm.NO_SPACE]
    if not raised:
        return False
    _log.warning("etcd is full; old revisions are forgotten and space is given back", members=len(raised))
    await tool.compact(await tool.revision())
    for url in client_urls:
        if await tool.status(url) is not None:
            await tool.defragment(url)
    for alarm in raised:
        await tool.disarm(alarm)
    return True
