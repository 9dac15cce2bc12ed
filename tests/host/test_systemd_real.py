"""The conformance suite of daemons again, where systemd really is process 1."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from quartermaster.testing.servers import find_program
from tests.host.real_systemd import OUT, run_under_systemd

FILES = ("tests/host/test_daemons.py", "tests/host/inside_systemd.py")
EXPECTED = {
    "test_process_1_is_systemd",
    "test_the_systemd_runtime_is_chosen",
    "test_ensure_starts_once_and_a_second_time_changes_nothing[systemd]",
    "test_the_next_agent_adopts_what_runs[systemd]",
    "test_a_killed_daemon_is_dead_with_its_signal_and_ensure_starts_it_again[systemd]",
    "test_children_go_with_the_daemon_unless_they_are_to_stay[systemd-True]",
    "test_a_daemon_that_is_being_stopped_still_runs[systemd]",
    "test_a_daemon_outlives_the_unit_of_the_agent_that_started_it",
    "test_a_lasting_daemon_is_started_again_after_its_end_and_at_boot_until_it_is_stopped",
    "test_a_host_that_was_brought_up_keeps_its_agent_until_it_is_taken_down",
}


@pytest.mark.systemd
@pytest.mark.timeout(240)
@pytest.mark.slow
def test_daemons_conform_under_a_real_systemd(tmp_path: Path) -> None:
    """One test, since the suite runs once however many workers there are."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "systemd"]
    environment = {
        "QM_TEST_REAL_SYSTEMD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{find_program('etcd').parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
    }
    code = run_under_systemd([*command, f"--junitxml={OUT}/report.xml", *FILES], tmp_path, environment=environment)
    log = (tmp_path / "log").read_text()
    print(log)
    assert code == 0
    cases = {
        case.attrib["name"]: len(case) == 0 for case in ElementTree.parse(tmp_path / "report.xml").iter("testcase")
    }
    assert [name for name, passed in cases.items() if not passed] == [], "neither failed nor skipped"
    assert cases.keys() >= EXPECTED
