"""A bound on how often something happens: so many at once, so many per second after that."""

from __future__ import annotations


class TokenBucket:
    """Counts in tokens; the caller brings the time, so that the bucket itself needs no clock and no timer."""

    __slots__ = ("_at", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def reserve(self, now: float) -> float:
        """Take a token that is there now or will be; returns how many seconds to wait for it."""
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
