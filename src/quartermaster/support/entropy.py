"""Randomness, through one door: inside a simulation loop all of it follows from the seed.

The standard library's own modules for it are imported with the first number: they are a good part of what a program
needs that only looks.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

# As Kubernetes: no vowels and no look-alikes, so that no word and no misreading comes out.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def source() -> random.Random:
    """The running loop's own generator (the simulation loop has one), else the system's."""
    try:
        own = getattr(asyncio.get_running_loop(), "random", None)
    except RuntimeError:
        own = None
    return own if own is not None else _system()


def new_uid() -> str:
    import uuid

    return str(uuid.UUID(int=source().getrandbits(128), version=4))


def name_suffix(length: int = 5) -> str:
    """What `generateName` appends."""
    generator = source()
    return "".join(generator.choice(_SUFFIX_ALPHABET) for _ in range(length))


def jitter(value: float, fraction: float = 0.1) -> float:
    """`value`, up to `fraction` longer, so that many clients do not come back at once."""
    return value * (1.0 + fraction * source().random())


@cache
def _system() -> random.Random:
    import random

    return random.SystemRandom()
