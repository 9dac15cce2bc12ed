"""The benchmark of the attach library: from what the contenders did to the bars that are judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.connectors import attaching, beside, commands, data, importing, parallel, scorecard, together
from bench.connectors.faults import FAULTS, Seen
from bench.connectors.host import Ran
from bench.connectors.importing import BARE, Cost
from bench.connectors.kernel import Lun, Target
from bench.connectors.library import BRICK, OURS, Outcome
from bench.connectors.peer import LOCK, pinned
from bench.connectors.script import Attach, Step, script_text
from bench.running import BenchFailedError

LOGIN = Ran(("iscsiadm", "-m", "node", "--login"), "", 0.0)
MAP = Ran(("rbd", "device", "map", "--pool", "volumes"), "", 0.0)


def test_an_import_is_judged_by_os_bricks_time_and_by_the_memory_of_asyncio() -> None:
    costs = {BARE: [Cost(30.0, 20.0, 0)], OURS: [Cost(90.0, 23.5, 1)] * 3, BRICK: [Cost(900.0, 70.0, 44)]}

    time, memory = importing.summarise(costs).bars

    assert (time.figure, time.held) == (pytest.approx(0.1), True)
    assert (memory.figure, memory.held, memory.peer) == (3.5, True, "os-brick 50.0 MiB")


def test_without_os_brick_only_the_memory_is_judged() -> None:
    (memory,) = importing.summarise({BARE: [Cost(30.0, 20.0, 0)], OURS: [Cost(90.0, 24.5, 1)]}).bars

    assert not memory.held


def test_an_attach_is_judged_by_what_it_takes_over_the_script_of_its_commands() -> None:
    times = {
        0: attaching.Times((50.0, 52.0, 90.0), (41.0, 42.0, 43.0), (170.0,)),
        50: attaching.Times((131.0,), (110.0,)),
    }

    part = attaching.summarise(times)

    assert [(bar.figure, bar.held) for bar in part.bars] == [(10.0, True), (21.0, False)]
    assert part.bars[0].peer == "52.0 ms; script 42.0 ms; os-brick 170 ms"
    assert list(part.plots[0].series) == ["bare script", OURS]  # os-brick was not measured for every delay


def test_many_attaches_are_judged_by_the_floor() -> None:
    (bar,) = parallel.summarise(parallel.Times(100, 4, 300, floor_s=1.0, ours_s=1.9, brick_s=100.0)).bars

    assert (bar.figure, bar.held) == (1.9, True)
    assert bar.peer == "1.90 s; floor 1.00 s; os-brick 100 s"


def target(number: int) -> Target:
    return Target(number, f"iqn:{number}", {1: Lun("6001405")}, portal="192.0.2.1:3260")


def test_targets_are_shared_out_evenly_and_each_one_finds_its_own_commands() -> None:
    targets = [target(number) for number in range(1, 11)]
    ran = [
        Ran(("iscsiadm", "-T", "iqn:1"), "", 0.0),
        Ran(("iscsiadm", "-T", "iqn:10"), "", 0.0),
        Ran(("tee", "/sys/class/scsi_host/host3/scan"), "0 0 1", 0.0),
        Ran(("sg_vpd", f"/dev/{targets[0].disk(1)}"), "", 0.0),
    ]

    assert [len(share) for share in parallel.shares(targets, 4)] == [3, 3, 2, 2]
    assert parallel.commands_of(ran, targets[0]) == [ran[0], ran[2], ran[3]]


def test_the_script_waits_for_the_device_after_the_scan_and_several_attaches_run_at_once() -> None:
    steps = [Step(("iscsiadm", "--login")), Step(("tee", "/sys/scan"), "0 0 1"), Step(("sg_vpd", "/dev/sdb"))]
    late, at_once = Attach(steps, "/dev/sdb", 0.05), Attach(steps, "/dev/sdb", 0.0)

    lines = script_text(Path("/never"), [late]).splitlines()
    several = script_text(Path("/never"), [at_once, at_once]).splitlines()

    place = lines.index("tee /sys/scan <<< '0 0 1' > /dev/null")
    assert lines[place + 1 : place + 4] == ["pause 0.05", "until_there /dev/sdb", "sg_vpd /dev/sdb > /dev/null"]
    assert "attach_0" in lines
    assert {"attach_0 &", "attach_1 &"} <= {*several}
    assert not [line for line in several if line.startswith("pause 0.0")]


def test_a_healthy_attach_is_judged_by_what_a_sick_one_beside_it_adds() -> None:
    (bar,) = beside.summarise(beside.Beside((40.0,), (55.0,), True, 140.0, 165_000.0)).bars

    assert (bar.figure, bar.held) == (15.0, True)
    assert bar.peer.endswith("os-brick 165 s")


def test_a_sick_attach_that_did_not_wait_proves_nothing() -> None:
    with pytest.raises(BenchFailedError, match="ended before the healthy one"):
        beside.summarise(beside.Beside((40.0,), (55.0,), False))


def test_ten_answers_are_counted_with_the_logins_and_maps_behind_them() -> None:
    outcomes = [Outcome(value="/dev/a")] * 9 + [Outcome(error="busy")]

    ten = together.counted(OURS, "iscsi", outcomes, [LOGIN, MAP, Ran(("rbd", "unmap"), "", 0.0)])

    assert (ten.attaches, ten.answers, ten.different, ten.errors) == (2, 9, 1, ("busy",))


def test_ten_processes_have_to_get_ten_equal_answers() -> None:
    good = together.Ten(OURS, "rbd", attaches=1, answers=10, different=1)

    (bar,) = together.summarise([good, together.Ten(BRICK, "rbd", attaches=10, answers=10, different=1)]).bars

    assert (bar.held, bar.peer) == (True, "os-brick 10, with 10 answers")
    for answers, different in ((9, 1), (10, 2)):
        with pytest.raises(BenchFailedError, match="ten processes, one volume over rbd"):
            together.summarise([together.Ten(OURS, "rbd", 1, answers, different)])


def test_every_command_of_ours_has_a_reason() -> None:
    lists = {kind: commands.Lists((LOGIN,), ()) for kind in commands.KINDS}

    part = commands.summarise({OURS: lists})

    assert part.tables[1].rows[0][-1] == commands.REASONS["iscsiadm login"]
    lists["nfs"] = commands.Lists((Ran(("lsscsi",), "", 0.0),), ())
    with pytest.raises(BenchFailedError, match="nobody says why a connect over NFS runs lsscsi"):
        commands.summarise({OURS: lists})


def test_commands_are_shown_without_what_is_only_of_this_run() -> None:
    argv = ("mount", "--target", "/tmp/bench-1/hosts/3-nfs/mounts/x", "iqn.2026-01.org.example:target-1")

    assert commands.shown(argv) == "mount --target …/mounts/x IQN"


def test_the_scorecard_counts_who_is_right() -> None:
    ours = dict.fromkeys(FAULTS, Seen(True, "as it should"))
    theirs = dict.fromkeys(FAULTS, Seen(False, "not so")) | {FAULTS[2]: Seen(True, "it too")}

    part = scorecard.summarise({OURS: ours, BRICK: theirs})

    assert [fault.number for fault in FAULTS] == list(range(1, 13))
    assert (part.bars[0].held, part.bars[0].peer) == (True, "os-brick 1 of 12")
    assert part.tables[0].rows[2][2:] == ("right", "as it should", "right", "it too")
    assert not scorecard.summarise({OURS: ours | {FAULTS[0]: Seen(False, "no")}}).bars[0].held


def test_fio_is_read_in_the_direction_that_was_measured() -> None:
    read, write = '{"iops": 5.0, "bw_bytes": 1048576}', '{"iops": 7.5, "bw_bytes": 2097152}'
    text = 'fio: a note\n{"jobs": [{"read": ' + read + ', "write": ' + write + "}]}"

    assert [data.figure_of(text, kind) for kind in ("read", "write", "randread", "randwrite")] == [1.0, 2.0, 5.0, 7.5]


def test_a_data_path_is_shown_as_a_share_of_the_bare_target() -> None:
    bare, ours = dict.fromkeys(data.PATTERNS, 200.0), dict.fromkeys(data.PATTERNS, 150.0)

    part = data.summarise([data.Measured("NBD", "fio's NBD client", 90.0, bare, ours)])

    assert part.tables[0].rows[1][2:4] == ("90.0 ms", "150 MiB/s (75 %)")
    assert part.plots[0].series["4k random read"] == (75.0,)


def test_os_brick_and_all_that_it_needs_are_pinned() -> None:
    found = pinned(LOCK.read_text())

    assert found["os-brick"] == "7.1.1"
    assert len(found) > 40
    assert all(found.values())
