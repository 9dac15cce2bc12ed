"""Mount options as storage systems write them: "-o vers=4.1,ro", "vers=4.1,ro" or a list; at times with a password."""

from __future__ import annotations

from collections.abc import Sequence

_SECRET = ("password", "password2", "pass", "secret", "user_pass")


def parse_options(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Single options in their order, each once."""
    words = text.split() if isinstance(text, str) else [str(word) for word in text or ()]
    found = [part.strip() for word in words if word != "-o" for part in word.removeprefix("-o").split(",")]
    return tuple(dict.fromkeys(part for part in found if part))


def value_of(options: Sequence[str], *names: str) -> str:
    for option in options:
        name, _, value = option.partition("=")
        if name in names:
            return value
    return ""


def without(options: Sequence[str], *names: str) -> tuple[str, ...]:
    return tuple(option for option in options if option.partition("=")[0] not in names)


def public(options: Sequence[str]) -> tuple[str, ...]:
    """Those that may stand in an argument list, a record and a log."""
    return without(options, *_SECRET)
