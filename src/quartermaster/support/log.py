"""Logs: a constant message and key-values, on standard error, secrets never.

Nothing is set up by importing this, and structlog is imported with the first line that is written: a command that logs
nothing does not pay for it. Until `configure` is called, warnings and worse are shown.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from quartermaster.support.redaction import redact

_LEVELS = {-1: logging.CRITICAL, 0: logging.WARNING, 1: logging.INFO}


class _Settings:
    level = logging.WARNING
    json = False
    sink: Any = None  # structlog's logger, once it is needed


class Logger:
    """Speaks for one room."""

    def __init__(self, room: str) -> None:
        self._room = room

    def debug(self, message: str, **values: Any) -> None:
        self._write(logging.DEBUG, "debug", message, values)

    def info(self, message: str, **values: Any) -> None:
        self._write(logging.INFO, "info", message, values)

    def warning(self, message: str, **values: Any) -> None:
        self._write(logging.WARNING, "warning", message, values)

    def error(self, message: str, **values: Any) -> None:
        self._write(logging.ERROR, "error", message, values)

    def exception(self, message: str, **values: Any) -> None:
        """An error together with the traceback of what is being handled."""
        self._write(logging.ERROR, "error", message, {**values, "exc_info": True})

    def _write(self, level: int, method: str, message: str, values: dict[str, Any]) -> None:
        if level < _Settings.level:
            return
        if _Settings.sink is None:
            _Settings.sink = _open_sink()
        # Nobody's work fails because nobody listens: standard error may be closed, or on a disk that is full.
        with suppress(OSError, ValueError):
            getattr(_Settings.sink, method)(message, room=self._room, **values)


def logger(room: str) -> Logger:
    return Logger(room)


def configure(*, verbosity: int = 0, json: bool = False) -> None:
    """Called once by a program. -1 shows nothing, 0 warnings, 1 what happens, 2 everything."""
    _Settings.level = _LEVELS.get(verbosity, logging.DEBUG)
    _Settings.json = json
    _Settings.sink = None


@contextmanager
def told_by(sink: Any) -> Iterator[None]:
    """Inside the block, warnings and worse go to `warning` and `error` of this one; to nobody where it is None."""
    before = _Settings.level, _Settings.sink
    _Settings.level, _Settings.sink = logging.WARNING if sink is not None else logging.CRITICAL, sink
    try:
        yield
    finally:
        _Settings.level, _Settings.sink = before


def _open_sink() -> Any:
    import structlog

    # Keys in the order in which they were given: sorting would hide the message's own order.
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if _Settings.json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)
    )
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redact_values,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
    )


def _redact_values(_logger: Any, _method: str, event: Any) -> Any:
    return {key: redact(value, key=key) for key, value in event.items()}
