"""What a host has left of the store after it gave up its member: kept for a while, and not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from quartermaster.orchestration.joining.remains import KEPT_S, discard, old_remains, remains
from quartermaster.support import clock


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for name in ("backups", "etcd/removed/etcd-2-2026-01-01", "etcd/etcd-7", "tls"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "backups/store-1.qmb").touch()
    (tmp_path / "backups/.store-2.qmb.new").touch()
    (tmp_path / "etcd/removed/etcd-2-2026-01-01/db").touch()
    return tmp_path


def names(paths: list[Path], state: Path) -> list[str]:
    return sorted(str(path.relative_to(state)) for path in paths)


def test_backups_and_data_of_former_members_remain_and_the_member_that_runs_is_none_of_it(state: Path) -> None:
    everything = ["backups/.store-2.qmb.new", "backups/store-1.qmb", "etcd/removed/etcd-2-2026-01-01"]
    assert names(remains(state), state) == everything
    for path in remains(state):
        discard(path)
    assert remains(state) == []
    assert (state / "etcd/etcd-7").is_dir()


def test_they_go_when_they_are_old_but_who_may_lead_keeps_its_backups(state: Path) -> None:
    now = clock.wall_time()
    assert old_remains(state, may_lead=False, now=now + KEPT_S - 60) == []
    later = now + KEPT_S + 60
    assert len(old_remains(state, may_lead=False, now=later)) == 3
    assert names(old_remains(state, may_lead=True, now=later), state) == ["etcd/removed/etcd-2-2026-01-01"]


def test_a_link_to_elsewhere_is_never_followed(state: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/mine").touch()
    (state / "etcd/removed/link").symlink_to(tmp_path / "elsewhere")
    for path in remains(state):
        discard(path)
    assert (tmp_path / "elsewhere/mine").exists()
