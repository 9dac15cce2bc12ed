"""Who reaches whom: a host whose cable is pulled reaches nobody, and nobody is told so."""

from __future__ import annotations

import asyncio

CLIENT = "client"  # where volumes are mounted


class Network:
    def __init__(self) -> None:
        self._cut: dict[str, float] = {}  # address → since when
        self._pairs: dict[tuple[str, str], float] = {}

    def cut(self, address: str) -> None:
        self._cut.setdefault(address, asyncio.get_running_loop().time())

    def cut_between(self, one: str, other: str) -> None:
        self._pairs.setdefault(_pair(one, other), asyncio.get_running_loop().time())

    def heal(self, address: str) -> None:
        self._cut.pop(address, None)

    def heal_between(self, one: str, other: str) -> None:
        self._pairs.pop(_pair(one, other), None)

    def heal_all(self) -> None:
        self._cut.clear()
        self._pairs.clear()

    def is_cut(self, address: str) -> bool:
        return address in self._cut

    def reaches(self, one: str, other: str) -> bool:
        return one == other or self.cut_since(one, other) is None

    def cut_since(self, one: str, other: str) -> float | None:
        if not self._cut and not self._pairs:
            return None
        times = (self._cut.get(one), self._cut.get(other), self._pairs.get(_pair(one, other)))
        known = [time for time in times if time is not None]
        return min(known) if known else None


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
