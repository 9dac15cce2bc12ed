"""The manager of etcd over its twin: members come and go with the hosts, whoever leads and whenever a leader dies."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from quartermaster.backends.etcd.tool import Alarm, EtcdStatus, RaisedAlarm
from quartermaster.resources.kubernetes.core import Event
from quartermaster.resources.marks import LEAVING
from quartermaster.resources.orchestration import Assignment, Host
from quartermaster.stores.modify import modify
from quartermaster.testing.simulation import run, simulated

from .modelled import LEADERS, SETTINGS, ModelledCluster, address, modelled

pytestmark = pytest.mark.slow


@simulated(range(3))
async def test_members_follow_the_hosts_and_their_hosts_may_lead() -> None:
    async with modelled("h1", "h2") as made:
        await made.settle("h1")
        made.host("h3")
        memory = await made.settle("h1", "h2", "h3")
        assert [seat.id for seat in memory.seats] == ["etcd-1", "etcd-2", "etcd-3"]
        assert made.daemons() == ["h1", "h2", "h3"]
        assert sorted(user for user in made.users.users if user.startswith("leader.")) == [
            "leader.h1.etcd-1",
            "leader.h2.etcd-2",
            "leader.h3.etcd-3",
        ]
        assert made.etcd.violations == []


@simulated()
async def test_a_member_whose_host_is_lost_for_good_is_replaced_and_its_name_is_not_used_again() -> None:
    async with modelled("h1", "h2", "h3") as made:
        await made.settle("h1", "h2", "h3")
        made.lose("h3")
        made.host("h4")
        memory = await made.settle("h1", "h2", "h4")
        assert [seat.id for seat in memory.seats] == ["etcd-1", "etcd-2", "etcd-4"]
        assert made.etcd.history[-3:] == ["remove etcd-3", f"add https://{address('h4')}:2380", "promote etcd-4"]
        assert "leader.h3.etcd-3" not in made.users.users
        assert made.etcd.violations == []
        # Back again it finds that it is no member any more: it clears up, and its data lie aside.
        made.host("h3")
        await asyncio.sleep(10)
        assert made.daemons() == ["h1", "h2", "h4"]
        aside = [path.name for path in Path(made.directory, "h3", "etcd", "removed").iterdir()]
        assert [name[: len("etcd-3-")] for name in aside] == ["etcd-3-"]


@simulated()
async def test_a_lost_host_alone_changes_nothing_and_taking_it_out_does() -> None:
    async with modelled("h1", "h2", "h3") as made:
        await made.settle("h1", "h2", "h3")
        made.lose("h3")
        await asyncio.sleep(120)
        assert len(made.etcd.voters) == 3
        await made.take_out("h3")
        await made.settle("h1")
        assert made.etcd.violations == []


@simulated(range(3))
@pytest.mark.parametrize("name", ["h1", "h3"])
async def test_a_member_without_its_data_is_never_started_and_another_takes_its_place_on_the_same_host(
    name: str,
) -> None:
    """A replaced machine, or a lost disk; with three hosts and no spare one."""
    async with modelled("h1", "h2", "h3") as made:
        before = (await made.settle("h1", "h2", "h3")).at(name)
        assert before is not None
        made.lose(name)
        made.wipe(name)
        await asyncio.sleep(5)
        made.host(name)
        deadline = asyncio.get_running_loop().time() + 300
        while (seat := (await made.memory()).at(name)) is None or seat.id == before.id or seat.phase != "serving":
            assert made.etcd.violations == []
            assert asyncio.get_running_loop().time() < deadline, (await made.memory()).seats
            await asyncio.sleep(1)
        memory = await made.settle("h1", "h2", "h3")
        assert "etcd-4" in {one.id for one in memory.seats}
        assert made.etcd.history[-3:] == [
            f"remove {before.id}",
            f"add https://{address(name)}:2380",
            "promote etcd-4",
        ]
        assert made.etcd.violations == []
        assert made.daemons() == ["h1", "h2", "h3"]


@simulated()
async def test_the_only_member_without_its_data_is_not_started_and_says_so() -> None:
    async with modelled("h1") as made:
        await made.settle("h1")
        await asyncio.sleep(10)
        made.lose("h1")
        made.wipe("h1")
        made.host("h1")
        await asyncio.sleep(60)
        assert made.daemons() == []
        work = await made.store.get(Assignment, "etcd.h1", "default")
        assert work.status.state == "failed"
        assert "cannot start etcd-1: its data are not on this host" in work.status.message


@simulated()
async def test_members_are_asked_at_the_same_time_and_one_that_is_silent_once_in_a_look() -> None:
    """Whoever is cut off is waited for, and everybody waits for who asks."""
    takes_s, together, most = 2.0, 0, 0
    asked: list[tuple[float, str]] = []
    async with modelled("h1", "h2", "h3") as made:
        await made.settle("h1", "h2", "h3")
        answer = made.etcd.status

        async def slow(client_url: str) -> EtcdStatus | None:
            nonlocal together, most
            together += 1
            most = max(most, together)
            asked.append((asyncio.get_running_loop().time(), client_url))
            await asyncio.sleep(takes_s)
            together -= 1
            return await answer(client_url)

        made.lose("h3")
        await asyncio.sleep(SETTINGS.look_s + 10)
        made.etcd.status = slow  # type: ignore[method-assign]
        await asyncio.sleep(4 * SETTINGS.look_s)
    times = [at for at, client_url in asked if address("h3") in client_url]
    assert most == 3
    assert len(times) >= 2
    assert min(later - at for at, later in pairwise(times)) > takes_s


@simulated()
async def test_a_leaving_host_hands_its_member_over() -> None:
    async with modelled("h1", "h2", "h3", "h4") as made:
        await made.settle("h1", "h2", "h3")

        def leave(host: Host) -> Host:
            return replace(host, metadata=replace(host.metadata, annotations={LEAVING: "now"}))

        await modify(made.store, Host, "h1", "default", leave)
        await made.settle("h2", "h3", "h4")
        assert made.etcd.history[-3:] == [f"add https://{address('h4')}:2380", "promote etcd-4", "remove etcd-1"]
        assert made.daemons() == ["h2", "h3", "h4"]


@simulated()
async def test_a_host_that_cannot_carry_a_member_is_passed_over_with_the_reason() -> None:
    async with modelled() as made:
        made.host("h1")
        made.host("h2", etcd=False)
        for name in ("h3", "h4"):
            made.host(name)
        memory = await made.settle("h1", "h3", "h4")
        assert [seat.id for seat in memory.seats] == ["etcd-1", "etcd-3", "etcd-4"]
        said = [event.message for event in (await made.store.list(Event, "default")).items]
        assert any("etcd-2 on host h2" in text and "install the package etcd-server" in text for text in said)


@simulated()
@pytest.mark.parametrize("claims", [address("h1"), "10.99.0.1"])
async def test_a_host_that_claims_an_address_that_is_not_its_own_gets_no_member_and_nothing_else_is_touched(
    claims: str,
) -> None:
    async with modelled("h1", "h2") as made:
        await made.settle("h1")
        made.host("h3", claims=claims, has=address("h3"))
        await asyncio.sleep(200)
        memory = await made.settle("h1")
        assert [(seat.id, seat.phase) for seat in memory.seats] == [("etcd-1", "serving")]
        assert made.etcd.history == []
        assert made.daemons() == ["h1"]
        said = [event for event in (await made.store.list(Event, "default")).items if event.reason == "WrongAddress"]
        assert [(event.involved_object.name, event.type) for event in said] == [("h3", "Warning")]
        assert f"it gets no member of etcd: its address {claims} is" in said[0].message
        made.processes["h3"].kill()
        made.host("h3", has=address("h3"))
        await made.settle("h1", "h2", "h3")
        assert made.etcd.violations == []


@simulated()
async def test_a_member_is_added_only_when_its_certificates_are_there() -> None:
    async with modelled("h1", "h2", "h3", "h4") as made:
        made.certified = lambda host: host != "h2"
        await made.settle("h1", "h3", "h4")
        assert not any(address("h2") in step for step in made.etcd.history)


@simulated()
async def test_a_host_that_was_silent_while_it_made_ready_is_chosen_again_as_soon_as_it_is_back() -> None:
    async with modelled("h1", "h2", "h3") as made:
        made.certified = lambda host: host != "h3"
        await made.until_there("h3", "preparing")
        made.lose("h3")
        await made.until_there("h3", "")
        began = asyncio.get_running_loop().time()
        made.host("h3")
        made.certified = lambda _host: True
        await made.settle("h1", "h2", "h3")
        assert asyncio.get_running_loop().time() - began < SETTINGS.unfit_s / 2


@simulated()
async def test_a_second_look_changes_nothing() -> None:
    async with modelled("h1", "h2", "h3") as made:
        await made.settle("h1", "h2", "h3")
        before = len(made.steps.seen)
        made.processes[LEADERS[0]].kill()
        made.lead(LEADERS[1])
        await asyncio.sleep(120)
        assert made.steps.seen[before:] == []


@simulated()
async def test_old_revisions_are_forgotten_space_is_given_back_and_a_full_database_is_cured() -> None:
    async with modelled() as made:
        made.host("h1")
        url = f"https://{address('h1')}:2379"
        made.etcd.sizes[url] = (10_000, 2_000)
        await asyncio.sleep(60)
        assert made.etcd.compacted > 0
        assert made.etcd.sizes[url] == (2_000, 2_000)
        made.etcd.raised.append(RaisedAlarm(Alarm.NO_SPACE, 1))
        await asyncio.sleep(20)
        assert made.etcd.raised == []


async def grow_and_replace(kill_at: int | None) -> list[str]:
    """One to three members, then one host is lost for good: the steps of the leaders, in order."""
    with tempfile.TemporaryDirectory() as directory:
        made = ModelledCluster(Path(directory), kill_at=kill_at)
        await made.begin()
        for name in LEADERS:
            made.lead(name)
        for name in ("h1", "h2", "h3"):
            made.host(name)
        await made.settle("h1", "h2", "h3")
        made.lose("h3")
        made.host("h4")
        memory = await made.settle("h1", "h2", "h4")
        assert made.etcd.violations == []
        assert made.daemons() == ["h1", "h2", "h4"]
        names = [seat.id for seat in memory.seats]
        assert len(names) == len(set(names)) == 3
        assert len(made.etcd.history) == 7, made.etcd.history
        await made.stop()
        return made.steps.seen


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.deep)])
def test_a_leader_lost_at_any_step_is_continued_by_the_next(every: int) -> None:
    steps = run(partial(grow_and_replace, None), seed=1).value
    assert sum("from etcd" in step or "to etcd" in step or "in etcd" in step for step in steps) >= 7
    for number in range(0, len(steps), every):
        run(partial(grow_and_replace, number), seed=1)
