"""What a stand-in for a program of the host reads in its argument list.

Nothing but the standard library: such a program runs without any other package, so that it starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence


def option(arguments: Sequence[str], *names: str) -> str:
    """The value behind an option, as `--name VALUE` or `--name=VALUE`."""
    for place, argument in enumerate(arguments):
        if argument in names and place + 1 < len(arguments):
            return arguments[place + 1]
        for name in names:
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return ""
