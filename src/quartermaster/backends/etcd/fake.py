"""Twins of a running etcd for the simulation: the rules of its membership, over daemons on modelled machines.

A member runs when the machine at its address runs the daemon with its name. What etcd itself would refuse is refused
here, and what it would do and nobody should ask for (losing the majority) is counted in `violations`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from quartermaster.backends.etcd.tool import DAEMON, Alarm, EtcdMember, EtcdStatus, RaisedAlarm
from quartermaster.backends.etcd.users import host_of_user, host_user, leader_user, leads_on
from quartermaster.host.fake import FakeMachine, Faults
from quartermaster.planning.quorum import majority
from quartermaster.support.errors import RefusedError, UnavailableError


class FakeEtcd:
    """See `EtcdTool`. `machines` are those of the hosts, by address; `cut` holds addresses that nobody reaches."""

    def __init__(self, machines: Mapping[str, FakeMachine], *, catch_up_s: float = 1.0) -> None:
        self._machines = machines
        self._catch_up_s = catch_up_s
        self._members: dict[int, EtcdMember] = {}
        self._started: dict[int, float] = {}
        self._next = 1
        self._revision = 1
        self.faults = Faults()
        self.cut: dict[str, None] = {}
        self.raised: list[RaisedAlarm] = []
        self.sizes: dict[str, tuple[int, int]] = {}  # client URL → (size, in use)
        self.compacted = 0
        self.violations: list[str] = []
        self.history: list[str] = []

    def bootstrap(self, name: str, peer_url: str, client_url: str) -> None:
        """The cluster of one that the first host makes."""
        self._members[self._next] = EtcdMember(self._next, name, (peer_url,), (client_url,))
        self._next += 1

    @property
    def voters(self) -> list[EtcdMember]:
        return [member for member in self._members.values() if not member.learner]

    @property
    def has_majority(self) -> bool:
        return sum(self._runs(member) for member in self.voters) >= majority(len(self.voters))

    async def members(self) -> tuple[EtcdMember, ...]:
        async with self.faults.step("list the members of etcd"):
            self._require_majority("list the members")
            self._publish()
            return tuple(self._members.values())

    async def add_learner(self, peer_url: str) -> EtcdMember:
        async with self.faults.step(f"add {peer_url} to etcd"):
            self._require_majority("add a member")
            known = [member for member in self._members.values() if peer_url in member.peer_urls]
            if known:
                return known[0]
            if any(member.learner for member in self._members.values()):
                raise RefusedError("cannot add a member: etcdserver: too many learner members in cluster")
            if not all(self._runs(member) for member in self.voters):
                raise RefusedError("cannot add a member: etcdserver: unhealthy cluster")
            member = EtcdMember(self._next, peer_urls=(peer_url,), learner=True)
            self._next += 1
            self._members[member.id] = member
            self.history.append(f"add {peer_url}")
            return member

    async def promote(self, member: int) -> bool:
        async with self.faults.step(f"promote {member} in etcd"):
            self._require_majority("promote a member")
            found = self._members.get(member)
            if found is None:
                raise RefusedError("cannot promote a member: etcdserver: member not found")
            if not found.learner:
                return True
            now = asyncio.get_running_loop().time()
            if not self._runs(found) or now - self._started.setdefault(member, now) < self._catch_up_s:
                return False
            self._members[member] = replace(found, learner=False)
            self.history.append(f"promote {found.name}")
            self._check(f"promoting {found.name}")
            return True

    async def remove(self, member: int) -> None:
        async with self.faults.step(f"remove {member} from etcd"):
            self._require_majority("remove a member")
            found = self._members.pop(member, None)
            if found is None:
                return
            self.history.append(f"remove {found.name or found.peer_urls[0]}")
            self._check(f"removing {found.name}")

    async def status(self, client_url: str) -> EtcdStatus | None:
        async with self.faults.step(f"ask {client_url}"):
            for member in self._members.values():
                if client_url in member.client_urls and self._runs(member) and self.has_majority:
                    size, in_use = self.sizes.get(client_url, (0, 0))
                    return EtcdStatus(member.id, "3.6.0", size, in_use, leader=min(one.id for one in self.voters))
            return None

    async def revision(self) -> int:
        async with self.faults.step("read the revision of etcd"):
            self._require_majority("read the revision")
            self._revision += 1
            return self._revision

    async def compact(self, revision: int) -> None:
        async with self.faults.step("compact etcd"):
            self._require_majority("compact")
            self.compacted = max(self.compacted, revision)

    async def defragment(self, client_url: str) -> None:
        async with self.faults.step(f"defragment {client_url}"):
            _, in_use = self.sizes.get(client_url, (0, 0))
            self.sizes[client_url] = (in_use, in_use)

    async def alarms(self) -> tuple[RaisedAlarm, ...]:
        async with self.faults.step("list the alarms of etcd"):
            self._require_majority("list the alarms")
            return tuple(self.raised)

    async def disarm(self, alarm: RaisedAlarm) -> None:
        async with self.faults.step("disarm an alarm of etcd"):
            if alarm in self.raised and alarm.alarm is Alarm.NO_SPACE:
                self.raised.remove(alarm)

    async def close(self) -> None:
        """There is nothing to close."""

    def _publish(self) -> None:
        """A member that has started tells its name and where it serves."""
        for member in list(self._members.values()):
            if not member.name and self._runs(member):
                argv = self._machines[_address(member)].processes[DAEMON].daemon.argv
                name, url = (argv[argv.index(flag) + 1] for flag in ("--name", "--advertise-client-urls"))
                self._members[member.id] = replace(member, name=name, client_urls=(url,))
                self._started[member.id] = asyncio.get_running_loop().time()

    def _runs(self, member: EtcdMember) -> bool:
        address = _address(member)
        machine = self._machines.get(address)
        process = machine.processes.get(DAEMON) if machine is not None else None
        if process is None or not process.lives or address in self.cut:
            return False
        argv = process.daemon.argv
        return not member.name or argv[argv.index("--name") + 1] == member.name

    def _require_majority(self, action: str) -> None:
        if not self.has_majority:
            raise UnavailableError(f"cannot {action}: etcdserver: no leader")

    def _check(self, act: str) -> None:
        if not self.has_majority:
            self.violations.append(f"{act} cost the majority")
        hosts = [_address(member) for member in self._members.values()]
        if len(hosts) != len(dict.fromkeys(hosts)):
            self.violations.append(f"{act} left two members on one host")


class FakeUsers:
    """See `EtcdUsers`."""

    def __init__(self) -> None:
        self.users: dict[str, None] = {"root": None}

    async def ensure_host(self, host: str, joined: str) -> None:
        await asyncio.sleep(0)
        self._keep(lambda user: host_of_user(user) != host)
        self.users[host_user(host, joined)] = None

    async def ensure_role(self, host: str) -> None:  # noqa: ARG002 - the protocol's signature
        await asyncio.sleep(0)

    async def ensure_leader(self, host: str, member: str) -> None:
        await asyncio.sleep(0)
        self.users[leader_user(host, member)] = None

    async def remove_host(self, host: str) -> None:
        await asyncio.sleep(0)
        self._keep(lambda user: host not in (host_of_user(user), leads_on(user)))

    async def remove_leaders(self, host: str) -> None:
        await asyncio.sleep(0)
        self._keep(lambda user: leads_on(user) != host)

    async def names(self) -> tuple[str, ...]:
        await asyncio.sleep(0)
        return tuple(sorted(self.users))

    def _keep(self, wanted: Callable[[str], bool]) -> None:
        self.users = {user: None for user in self.users if wanted(user)}


def _address(member: EtcdMember) -> str:
    return member.peer_urls[0].partition("://")[2].rpartition(":")[0]
