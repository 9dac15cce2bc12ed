"""Logs: on standard error, as loud as asked for, without secrets."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from quartermaster.support import log


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    log.configure()


LEVELS = ("debug", "info", "warning", "error")


@pytest.mark.parametrize(("verbosity", "shown"), [(-1, ()), (0, LEVELS[2:]), (1, LEVELS[1:]), (2, LEVELS), (7, LEVELS)])
def test_verbosity_decides_what_is_shown(
    verbosity: int, shown: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure(verbosity=verbosity, json=True)
    for level in LEVELS:
        getattr(log.logger("room"), level)("something happened")
    output = capsys.readouterr()
    assert tuple(json.loads(line)["level"] for line in output.err.splitlines()) == shown
    assert output.out == ""


def test_a_line_has_the_message_the_room_the_time_and_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True)
    log.logger("engine").warning("cache is stale", cache="leases", stale_s=61)
    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "cache is stale", "room": "engine", "cache": "leases", "stale_s": 61, "level": "warning"}


def test_for_people_a_line_begins_with_the_time_and_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure()
    log.logger("engine").warning("cache is stale", cache="leases")
    text = capsys.readouterr().err
    assert text.index("[warning") < text.index("cache is stale") < text.index("cache=leases")


def test_an_exception_is_shown_with_its_traceback_and_without_its_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(json=True)
    try:
        int("refused Bearer abcdef123456")
    except ValueError:
        log.logger("engine").exception("handler failed", password="s3cret")
    text = capsys.readouterr().err
    assert "ValueError: invalid literal" in text
    assert "refused Bearer [redacted]" in text
    assert "abcdef123456" not in text
    assert "s3cret" not in text


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", closed)
    log.configure()
    log.logger("room").warning("something happened")
    assert "something happened" in closed.getvalue()
    closed.close()
    log.logger("room").warning("nobody listens any more")


def test_who_logs_nothing_does_not_import_the_library() -> None:
    program = "import sys; from quartermaster.support import log; log.logger('a').info('b'); print(sorted(sys.modules))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "'quartermaster.support.log'" in output
    assert "'structlog'" not in output
