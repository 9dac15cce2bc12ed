"""How long to wait before trying again: exponential, bounded, jittered, forgotten after success."""

from __future__ import annotations

from dataclasses import dataclass

from quartermaster.support import entropy


@dataclass(frozen=True)
class Backoff:
    """The rule. `delay_s(n)` is the wait before attempt n+1, n counted from 0."""

    first_s: float = 0.05
    factor: float = 2.0
    limit_s: float = 30.0
    jitter: float = 0.1

    def delay_s(self, failures: int) -> float:
        # 2**60 seconds is past any limit: the exponent is bounded so that the float is too
        plain = min(self.limit_s, self.first_s * self.factor ** min(failures, 60))
        return entropy.jitter(plain, self.jitter)
