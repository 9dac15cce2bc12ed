"""What holds for every driver: the exact commands, faults and crashes at every step, repetition, silence on secrets."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from quartermaster.connectors import ConnectionInfo
from quartermaster.connectors.names import file_name
from quartermaster.support import log
from quartermaster.support.errors import QuartermasterError
from tests.connectors.cases import CASES
from tests.connectors.harness.case import CANARY, Case
from tests.connectors.harness.running import connector_in, in_process, killed_in
from tests.connectors.harness.world import FAIL_AFTER, FAIL_BEFORE, KILL, KILL_AFTER, World

MOST_STEPS = 60

# Before the effect of a step, which comes so long after the death of the connector, or when it was there.
PARTS = 3  # that a row is cut into where it takes long: the longest has thirty steps, with two seconds after each
deaths = pytest.mark.parametrize(
    ("how", "late_s", "part"),
    [
        (KILL, 0.4, None),
        (KILL_AFTER, 0.0, None),
        *(pytest.param(KILL, 2.0, part, marks=pytest.mark.deep) for part in range(PARTS)),
    ],
    ids=["before", "after", *(f"long before {part}" for part in range(PARTS))],
)
every_driver = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
# At every step a new process: minutes for all drivers, which is `make test-deep`. These have one of each kind of step.
FEW = ("smbfs", "nbd userspace")
a_few_drivers = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in FEW else pytest.mark.deep) for case in CASES],
    ids=lambda case: case.name.replace(" ", "-"),
)
# On a machine that has other work too.
at_length = pytest.mark.timeout(900)
pytestmark = pytest.mark.slow  # every command is a process
# Programs that other programs start with a secret in their arguments, which this library cannot change.
EXCEPTIONS = ("drbdsetup",)
GUIDE = Path(__file__).parents[2] / "docs/guide/connectors.md"


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def shown(world: World) -> list[list[str]]:
    """The commands, with the volume's id cut out too where it is a hash."""
    found = world.commands()
    files = [path.stem for path in world.path("state/attachments").glob("*.json")]
    names = [file_name(name) for name in world.fact("volumes", [])] + files
    for name in names:
        found = [[part.replace(f"/secrets/{name}", "/secrets/VOLUME") for part in argv] for argv in found]
    return found


@every_driver
def test_the_commands_are_exactly_these(case: Case, tmp_path: Path) -> None:
    world = case.world(tmp_path)
    with case.stub(world):
        before = world.snapshot()
        info = case.info(world)
        connector = connector_in(world, **case.options)
        attachment = run(connector.connect(info))
        assert case.ordered(shown(world)) == case.ordered(case.connect)
        assert attachment.path.replace(str(world.directory), "{world}") == case.path
        assert run(connector.device_path(attachment.volume_id)) == attachment.path
        world.forget()
        assert run(connector.disconnect(info)) == attachment.path
        assert case.ordered([argv for argv in shown(world) if argv[0] != "stat"]) == case.ordered(case.disconnect)
        assert case.kept(world.snapshot()) == case.kept(before)


@every_driver
def test_each_call_twice_is_as_once(case: Case, tmp_path: Path) -> None:
    world = case.world(tmp_path)
    with case.stub(world):
        info = case.info(world)
        before = world.snapshot()
        first = run(connector_in(world, **case.options).connect(info))
        attached = world.snapshot()
        assert run(connector_in(world, **case.options).connect(info)) == first
        assert world.snapshot() == attached
        run(connector_in(world, **case.options).disconnect(info))
        assert run(connector_in(world, **case.options).disconnect(info)) == ""
        assert run(connector_in(world, **case.options).recover()) == ()
        assert case.kept(world.snapshot()) == case.kept(before)


@a_few_drivers
@at_length
@pytest.mark.parametrize("how", [FAIL_BEFORE, FAIL_AFTER])
def test_a_connect_that_fails_anywhere_leaves_the_host_as_it_was(case: Case, how: str, tmp_path: Path) -> None:
    def try_one(world: World, number: int) -> bool:
        info = case.info(world)
        before = world.snapshot()
        world.plan(number, how)
        try:
            run(connector_in(world, **case.options).connect(info))
        except QuartermasterError:
            failed = True
        else:
            failed = False
        reached = world.count() > number
        world.unplan()
        if not failed:  # the step could be done without, or there is no such step
            run(connector_in(world, **case.options).disconnect(info))
        assert case.kept(world.snapshot()) == case.kept(before), f"step {number} {how}"
        return reached

    at_every_step(case, tmp_path, try_one)


@a_few_drivers
@at_length
@pytest.mark.parametrize("how", [FAIL_BEFORE, FAIL_AFTER])
def test_a_disconnect_that_fails_anywhere_is_finished_by_the_next(case: Case, how: str, tmp_path: Path) -> None:
    def try_one(world: World, number: int) -> bool:
        info = case.info(world)
        before = world.snapshot()
        run(connector_in(world, **case.options).connect(info))
        world.plan(number, how)
        with suppress(QuartermasterError):
            run(connector_in(world, **case.options).disconnect(info))
        reached = world.count() > number
        world.unplan()
        run(connector_in(world, **case.options).disconnect(info))
        assert case.kept(world.snapshot()) == case.kept(before), f"step {number} {how}"
        return reached

    at_every_step(case, tmp_path, try_one)


@a_few_drivers
@at_length
@deaths
def test_what_a_killed_connect_leaves_is_taken_away(
    case: Case, how: str, late_s: float, part: int | None, tmp_path: Path
) -> None:
    def try_one(world: World, number: int) -> bool:
        info = case.info(world)
        before = world.snapshot()
        world.plan(number, how, late_s=late_s)
        killed = killed_in(world, lambda: connector_in(world, **case.options).connect(info))
        world.unplan()
        failures = [one for one in run(connector_in(world, **case.options).recover()) if one.problem]
        assert failures == []
        if run(connector_in(world, **case.options).list(foreign=False)).attachments:
            # It was killed after the last word was written: the volume is attached.
            run(connector_in(world, **case.options).disconnect(info))
        assert case.kept(world.snapshot()) == case.kept(before), f"killed in step {number}"
        return killed

    at_every_step(case, tmp_path, try_one, part=part)


@a_few_drivers
@at_length
@deaths
def test_a_killed_disconnect_is_finished(case: Case, how: str, late_s: float, part: int | None, tmp_path: Path) -> None:
    def try_one(world: World, number: int) -> bool:
        info = case.info(world)
        before = world.snapshot()
        run(connector_in(world, **case.options).connect(info))
        world.plan(number, how, late_s=late_s)
        killed = killed_in(world, lambda: connector_in(world, **case.options).disconnect(info))
        world.unplan()
        assert [one for one in run(connector_in(world, **case.options).recover()) if one.problem] == []
        # Killed before the first word was written, it is still attached.
        run(connector_in(world, **case.options).disconnect(info))
        assert case.kept(world.snapshot()) == case.kept(before), f"killed in step {number}"
        return killed

    at_every_step(case, tmp_path, try_one, part=part)


@every_driver
def test_ten_processes_that_connect_one_volume_attach_it_once(case: Case, tmp_path: Path) -> None:
    world = case.world(tmp_path)
    with case.stub(world):
        info = case.info(world)
        waiting = [in_process(world, lambda: connector_in(world, **case.options).connect(info)) for _ in range(10)]
        answers = [wait() for wait in waiting]
        assert [code for code, _ in answers] == [0] * 10
        assert all(answer == answers[0][1] for _, answer in answers)
        expected = case.ordered([argv for argv in case.connect if argv[0] not in case.looks])
        assert case.ordered([argv for argv in shown(world) if argv in expected]) == expected


@every_driver
def test_no_secret_is_in_an_argument_a_record_a_log_or_an_error(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = case.world(tmp_path)
    log.configure(verbosity=2)
    try:
        with case.stub(world):
            info = case.info(world)
            said = [repr(ConnectionInfo.from_map(info))]
            for number in range(MOST_STEPS):
                world.plan(number, FAIL_AFTER)
                try:
                    said.append(repr(run(connector_in(world, **case.options).connect(info))))
                except QuartermasterError as error:
                    said += [str(error), repr(error.__dict__), repr(error.__cause__), *getattr(error, "__notes__", [])]
                said += kept_in(world)
                if world.count() <= number:
                    break
            world.unplan()
            connector = connector_in(world, **case.options)
            said.append(repr(run(connector.list())))
            said.append(repr(run(connector.disconnect(info))))
            said += [repr(run(connector.recover())), *kept_in(world)]
    finally:
        log.configure()
    said += [part for argv in world.commands() for part in argv]
    said += [part for argv in world.started() if argv[0] not in EXCEPTIONS for part in argv]
    said += [*capsys.readouterr()]
    assert not [text for text in said if CANARY in text]


def test_the_exceptions_are_needed_and_told(tmp_path: Path) -> None:
    """That DRBD's own program passes the secret on so is seen with the real one in the host lab's tests."""
    found: set[str] = set()
    for case in [one for one in CASES if one.name.startswith("drbd")]:
        own = tmp_path / case.name
        own.mkdir()
        world = case.world(own)
        run(connector_in(world, **case.options).connect(case.info(world)))
        found |= {argv[0] for argv in world.started() if any(CANARY in part for part in argv)}
    assert found == {*EXCEPTIONS}
    assert all(f"`{name}` as an argument" in GUIDE.read_text() for name in EXCEPTIONS)


def kept_in(world: World) -> list[str]:
    """All that the library has written down, but for the files that only root reads until a volume is disconnected:
    DRBD's configuration, and the credentials by which a volume of ScaleIO is given back."""
    files = [path for path in world.path("state").rglob("*") if path.is_file() and path.parent.name != "secrets"]
    assert not [file for file in world.path("state/secrets").iterdir() if file.stat().st_mode & 0o077]
    return [file.read_text(errors="replace") for file in files]


def at_every_step(
    case: Case, directory: Path, try_one: Callable[[World, int], bool], *, part: int | None = None
) -> None:
    """In a fresh world for each step, until there is no such step; of a `part`, every third."""
    first, every = (0, 1) if part is None else (part, PARTS)
    for number in range(first, MOST_STEPS, every):
        own = directory / str(number)
        own.mkdir()
        world = case.world(own)
        with case.stub(world):
            if not try_one(world, number):
                assert number > first or part, "there was no step at all"
                return
    raise AssertionError(f"there are more than {MOST_STEPS} steps")
