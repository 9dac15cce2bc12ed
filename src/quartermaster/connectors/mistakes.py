"""All that is wrong with a volume's data at once, for checks that look at several keys.

def __post_init__(self) -> None:
    wrong = Mistakes()
    if not self.hosts:
        wrong.add("hosts", "names no monitor", 'for example ["192.0.2.1"]')
    if not self.target_iqn and not self.target_iqns:
        wrong.add("targetIqn", "is missing", 'for example "iqn.2026-01.org.example:disk"', unless=["targetIqns"])
    with wrong.about("targetPortal", 'for example "192.0.2.1:3260"'):
        parse_portal(self.target_portal)      # raises ValueError
    wrong.tell()

The checks also run over data in which other keys are mistyped: these have a value of their type that means nothing. A
mistake in such a key, or `unless` one of its companions is such a key, is not told, for it may be none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from quartermaster.support.errors import Problem


def squash(key: str) -> str:
    """A key as it is compared: in any spelling."""
    return key.replace("_", "").replace("-", "").lower()


class MistakesError(ValueError):
    """`problems` with the keys that each is about."""

    def __init__(self, problems: Mapping[Problem, frozenset[str]]) -> None:
        super().__init__("; ".join(f"{problem.path} {problem.message}" for problem in problems))
        self.problems = tuple(problems)
        self._keys = dict(problems)

    def without(self, keys: Collection[str]) -> list[Problem]:
        """Those that are about none of these keys."""
        plain = {squash(key) for key in keys}
        return [problem for problem, about in self._keys.items() if about.isdisjoint(plain)]

    def example(self, path: str) -> str:
        """What the checks say of a key that has nothing of use: they know what belongs there. Empty without one."""
        fixes = (problem.fix for problem in self.problems if problem.path == path)
        return next((fix for fix in fixes if fix.startswith("for example ")), "")


class Mistakes:
    """Keys are named as the specification writes them. Values are quoted by whoever knows that they are no secret."""

    def __init__(self) -> None:
        self._problems: dict[Problem, frozenset[str]] = {}

    def add(self, key: str, message: str, fix: str, *, unless: Collection[str] = ()) -> None:
        problem = Problem(f"data.{key}" if key else "data", message, fix)
        self._problems[problem] = frozenset(map(squash, (key, *unless)))

    @contextmanager
    def about(self, key: str, fix: str, *, unless: Collection[str] = ()) -> Iterator[None]:
        """What a check inside the block finds is a mistake in that key."""
        try:
            yield
        except ValueError as error:
            self.add(key, str(error), fix, unless=unless)

    def tell(self) -> None:
        if self._problems:
            raise MistakesError(self._problems)
