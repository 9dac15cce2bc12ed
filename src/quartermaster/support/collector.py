"""The collector of cyclic garbage, kept out of long calculations."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Around a calculation that makes no cycles and awaits nothing.

    Of ten thousand hosts there are millions of objects. While a plan of them is made, the collector would walk over all
    of these several times and find nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
