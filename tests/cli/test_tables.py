"""Tables look as kubectl's do."""

import pytest

from quartermaster.cli.tables import Columns, Writer, age, duration
from quartermaster.resources import StorageNode, kind_of
from quartermaster.resources.kubernetes.volumes import PersistentVolumeClaim
from quartermaster.support import clock

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE + 59, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 20 * MINUTE, "3h20m"),
        (8 * HOUR + 20 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 5 * HOUR, "2d5h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * 365 * DAY, "2y"),
        (2 * 365 * DAY + 3 * DAY, "2y3d"),
        (9 * 365 * DAY + 3 * DAY, "9y"),
        (-1, "0s"),
        (-60, "<invalid>"),
    ],
)
def test_a_length_of_time_is_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_age_is_counted_from_now() -> None:
    assert age(clock.timestamp()) in ("0s", "1s")


def test_what_is_no_time_has_no_age() -> None:
    assert age("yesterday") == "<unknown>"


def test_columns_stand_under_their_headers_with_three_blanks_between() -> None:
    assert Writer(["NAME", "TYPE"]).format([["storage-node1", "ceph"], ["b", "glusterfs"]]).splitlines() == [
        "NAME            TYPE",
        "storage-node1   ceph",
        "b               glusterfs",
    ]


def test_rows_that_come_later_keep_the_widths_and_repeat_no_header() -> None:
    writer = Writer(["NAME", "TYPE"])
    writer.format([["storage-node1", "ceph"]])
    assert writer.format([["b", "nfs"]]) == "b               nfs\n"


def test_the_columns_are_those_of_the_kind_and_the_wide_ones_on_request() -> None:
    assert Columns(kind_of(StorageNode)).headers == ["NAME", "TYPE", "CLUSTER", "HOST", "STATE", "AGE"]
    assert "CAPACITY" in Columns(kind_of(StorageNode), wide=True).headers


def test_what_is_empty_says_so() -> None:
    cells = Columns(kind_of(StorageNode)).cells({"metadata": {"name": "a"}, "spec": {"type": "nfs"}})
    assert cells == ["a", "nfs", "<none>", "<none>", "<none>", "<unknown>"]


def test_a_text_of_several_lines_is_put_on_one() -> None:
    document = {"metadata": {"name": "a"}, "spec": {"type": "nfs"}, "status": {"message": "first\nsecond"}}
    assert "first second" in Columns(kind_of(StorageNode), wide=True).cells(document)


@pytest.mark.parametrize(
    ("deleted", "shown"), [({}, "Bound"), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Terminating")]
)
def test_a_claim_that_is_being_deleted_is_shown_as_kubectl_shows_it(deleted: dict[str, str], shown: str) -> None:
    document = {"metadata": {"name": "data", **deleted}, "status": {"phase": "Bound"}}
    assert Columns(kind_of(PersistentVolumeClaim)).cells(document)[:2] == ["data", shown]
