"""Who may do what follows from the objects: a Host keeps the rights that it got when it joined, and one that carries a
member may lead.

A host that has left loses its rights at once. One whose Host object somebody deleted loses them only after a while: as
long as its agent runs, it makes the object again.
"""

from __future__ import annotations

import asyncio

from quartermaster.backends.base import RefreshEvent
from quartermaster.backends.etcd.memory import Memory, Seat
from quartermaster.backends.etcd.users import EtcdUsers, host_of_user, leader_user
from quartermaster.engine.cache import Cache
from quartermaster.resources.marks import LEAVING
from quartermaster.resources.orchestration import Host
from quartermaster.support.log import logger

FORGET_S = 600.0
# How many hosts are compared with what they may in one look; after an upgrade all get what is new to be read.
VERIFIED_AT_ONCE = 10

_log = logger("backends.etcd.rights")


class Rights:
    """Of one term of one leader."""

    def __init__(self, users: EtcdUsers, hosts: Cache[Host], *, forget_s: float = FORGET_S) -> None:
        self._users = users
        self._hosts = hosts
        self._forget_s = forget_s
        self._leaders: dict[str, None] = {}
        self._absent_since: dict[str, float] = {}
        self._leaving: dict[str, None] = {}
        self._verified = ""

    async def refresh(self, memory: Memory, event: RefreshEvent) -> None:
        for host in self._hosts.list():
            if LEAVING in host.metadata.annotations:
                self._leaving[host.metadata.name] = None
        for seat in memory.seats:
            if seat.phase == "serving":
                await self.may_lead(seat)
        if event.full or event.added or event.removed:
            await self._match(memory)
        await self._verify()

    async def may_lead(self, seat: Seat) -> None:
        """Before it gets the certificate that says so."""
        user = leader_user(seat.host, seat.id)
        if user not in self._leaders:
            await self._users.ensure_leader(seat.host, seat.id)
            self._leaders[user] = None

    async def may_not_lead(self, seat: Seat) -> None:
        self._leaders.pop(leader_user(seat.host, seat.id), None)
        await self._users.remove_leaders(seat.host)

    async def _match(self, memory: Memory) -> None:
        now = asyncio.get_running_loop().time()
        known = [host.metadata.name for host in self._hosts.list()]
        users = await self._users.names()
        for host in known:
            self._absent_since.pop(host, None)
        for host in dict.fromkeys(host_of_user(user) for user in users):
            if not host or host in known or memory.at(host) is not None:
                continue
            since = self._absent_since.setdefault(host, now)
            if host in self._leaving or now - since >= self._forget_s:
                _log.warning("a host that was taken out has no rights any more", host=host)
                await self._users.remove_host(host)
                self._absent_since.pop(host, None)
                self._leaving.pop(host, None)

    async def _verify(self) -> None:
        """A few at a time, in turn."""
        names = [host.metadata.name for host in self._hosts.list()]
        following = [name for name in names if name > self._verified][:VERIFIED_AT_ONCE]
        for name in following:
            await self._users.ensure_role(name)
        self._verified = following[-1] if following else ""
