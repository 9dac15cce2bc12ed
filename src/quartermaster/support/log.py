"""Logs: a constant message and key-values, on standard error, secrets never."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from quartermaster.support.redaction import redact


def logger(name: str) -> Any:
    """A bound logger; `name` is the room that speaks."""
    return structlog.get_logger(room=name)


def configure(*, verbosity: int = 0, json: bool = False) -> None:
    """Called once by a program that runs for a while; a library user configures structlog as they like."""
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=40)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact_values,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _redact_values(_logger: Any, _method: str, event: Any) -> Any:
    return {key: redact(value, key=key) for key, value in event.items()}
