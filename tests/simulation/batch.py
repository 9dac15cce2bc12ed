"""Many seeds in processes of their own, so that hash seeds differ and the machine's cores are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]


class Outcome(msgspec.Struct, frozen=True):
    """What a batch printed: a digest per seed that passed, then either the totals or the first violation."""

    digests: tuple[str, ...]
    last: dict[str, Any]
    module: str = "tests.simulation"

    @property
    def passed(self) -> bool:
        return "totals" in self.last

    def explain(self) -> str:
        return f"{self.last}\nreplay it: python -m {self.module} --seed {self.last.get('seed')} --trace"


class Batch:
    """Seeds `first` to `first + count - 1`, running."""

    def __init__(
        self,
        first: int,
        count: int,
        *,
        hash_seed: int,
        source: Path | None = None,
        module: str = "tests.simulation",
    ) -> None:
        self._module = module
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        command = [sys.executable, "-m", module, "--first", str(first), "--count", str(count)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def wait(self, timeout_s: float) -> Outcome:
        try:
            output, errors = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        lines = output.splitlines()
        assert lines, errors
        assert lines[-1].startswith("{"), errors
        return Outcome(tuple(lines[:-1]), json.loads(lines[-1]), self._module)


def passed_with(outcomes: Sequence[Outcome], kinds: Sequence[str]) -> None:
    """All passed, and of each kind of fault or event something happened."""
    totals: dict[str, int] = {}
    for outcome in outcomes:
        assert outcome.passed, outcome.explain()
        for name, number in outcome.last["totals"].items():
            totals[name] = totals.get(name, 0) + number
    assert [kind for kind in kinds if not totals.get(kind)] == []


def once_and_again(module: str, first: int, seeds: int, replayed: int, *, timeout_s: float) -> Outcome:
    """Seeds, of which the first ones run a second time beside them, under another hash seed, to the same end."""
    batches = [Batch(first, count, hash_seed=count, module=module) for count in (seeds, replayed)]
    once, again = [batch.wait(timeout_s) for batch in batches]
    assert again.passed, again.explain()
    assert once.digests[:replayed] == again.digests
    return once


def in_halves(module: str, seeds: int, *, timeout_s: float) -> list[Outcome]:
    """Seeds from 0 on, on two cores."""
    half = seeds // 2
    batches = [Batch(first, half, hash_seed=first, module=module) for first in (0, half)]
    return [batch.wait(timeout_s) for batch in batches]
