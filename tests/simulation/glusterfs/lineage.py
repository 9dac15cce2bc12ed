"""What is on the copies of a volume, and what becomes of it: pure.

Every file has a version that grows with each write that somebody was told to be done. A copy that missed one is older,
and the copies that did not miss it say so of it, as the extended attributes of gluster do: by the position of the
brick in its set. Healing takes the newest version from copies of which nobody who runs says that they are behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

FILES = 3


class Shape(msgspec.Struct, frozen=True):
    """How a set of bricks keeps its files."""

    width: int
    data: int = 0  # of an erasure-coded set: so many parts make a file
    arbiter: bool = False

    @property
    def least(self) -> int:
        """So many copies make a file."""
        return self.data or 1

    @property
    def writers(self) -> int:
        """So many bricks have to take a write."""
        if self.data:
            return self.data
        return 1 if self.width < 3 else self.width // 2 + 1

    @property
    def has_none_to_spare(self) -> bool:
        """Whether too little content is left where two bricks go: the one that is being replaced and another."""
        return sum(self.keeps_content(at) for at in range(self.width)) - 2 < self.least

    def keeps_content(self, position: int) -> bool:
        return not (self.arbiter and position == self.width - 1)


class Copy(msgspec.Struct):
    """What one brick has in its directory."""

    volume: str  # the id of the volume that it belongs to
    versions: dict[str, int] = {}
    blames: dict[str, dict[int, None]] = {}  # file → positions of bricks that lack something of it
    rooted: bool = True  # its root was healed: of an erasure-coded set a new brick takes no file and no blame before

    @property
    def pending(self) -> int:
        return sum(bool(blamed) for blamed in self.blames.values())


Copies = Sequence[Copy | None]  # of one set by position; None where a brick does not answer


def good(shape: Shape, copies: Copies, file: str, newest: int) -> list[int]:
    """Positions of copies that have the newest version, and of which no other one says otherwise."""
    accused = accused_of(copies, file)
    return [
        at
        for at, copy in enumerate(copies)
        if copy is not None and copy.rooted and copy.versions.get(file, 0) == newest and at not in accused
    ]


def accused_of(copies: Copies, file: str) -> dict[int, None]:
    return {at: None for copy in copies if copy is not None for at in copy.blames.get(file, ())}


def write(shape: Shape, copies: Copies, file: str, newest: int) -> bool:
    """Whether the next version of the file was taken by as many as it needs. What cannot be, changes nothing."""
    takers = good(shape, copies, file, newest)
    content = [at for at in takers if shape.keeps_content(at)]
    if sum(copy is not None for copy in copies) < shape.writers or len(content) < shape.least:
        return False
    for at in takers:
        copy = copies[at]
        assert copy is not None
        copy.versions[file] = newest + 1
        missing = {other: None for other in range(shape.width) if other not in takers}
        if missing:
            copy.blames.setdefault(file, {}).update(missing)
    return True


def heal(shape: Shape, copies: Copies, file: str) -> bool:
    """Whether something of the file was healed."""
    accused = accused_of(copies, file)
    sources = [at for at, copy in enumerate(copies) if copy is not None and at not in accused]
    newest = max((_version(copies, at, file) for at in sources), default=0)
    whole = [at for at in sources if shape.keeps_content(at) and _version(copies, at, file) == newest]
    if len(whole) < shape.least:
        return False
    behind = [at for at, copy in enumerate(copies) if copy is not None and _version(copies, at, file) != newest]
    sinks = {at: None for at, copy in enumerate(copies) if copy is not None and (at in accused or at in behind)}
    if not sinks:
        return False
    # Whoever was healed knows what the sources know of those that are away: it may be the only one left when they come.
    away = {at: None for one in sources for at in _blames(copies, one, file) if copies[at] is None}
    for at, copy in enumerate(copies):
        if copy is None:
            continue
        if at in sinks:
            copy.versions[file] = newest
        copy.blames.pop(file, None)
        if away:
            copy.blames[file] = dict(away)
    return True


def is_at_rest(copies: Copies) -> bool:
    """Whether those that answer are equal, and none of them says anything of another one."""
    known = [copy for copy in copies if copy is not None]
    return not any(copy.pending for copy in known) and all(copy.versions == known[0].versions for copy in known[1:])


def is_split(shape: Shape, copies: Copies, file: str) -> bool:
    """Whether all copies that answer are said to be behind by others."""
    accused = accused_of(copies, file)
    answering = [at for at, copy in enumerate(copies) if copy is not None and shape.keeps_content(at)]
    return bool(answering) and all(at in accused for at in answering)


def newest_of(shape: Shape, copies: Copies, file: str) -> int:
    """The position of the copy that somebody chooses who can see all that answer."""
    held = [at for at, copy in enumerate(copies) if copy is not None and shape.keeps_content(at)]
    return max(held, key=lambda at: _version(copies, at, file))


def take(copies: Copies, source: int, file: str) -> None:
    """Somebody has decided which of the copies that contradict each other is the right one."""
    version = _version(copies, source, file)
    behind = {at: None for at in range(len(copies)) if _version(copies, at, file) != version}
    for at, copy in enumerate(copies):
        if copy is not None:
            copy.blames.pop(file, None)
            if at not in behind and behind:
                copy.blames[file] = dict(behind)


def blame_new(copies: Copies, position: int, files: Sequence[str]) -> None:
    """A brick that takes the place of another lacks everything, and those that run know it."""
    for at, copy in enumerate(copies):
        if copy is not None and at != position:
            for file in files:
                copy.blames.setdefault(file, {})[position] = None


def root(shape: Shape, copies: Copies, files: Sequence[str]) -> bool:
    """Whether the root of a new brick of an erasure-coded set was healed: from then on the others blame it for all that
    there is. Before that nobody does, and it looks like a whole one.
    """
    new = [at for at, copy in enumerate(copies) if copy is not None and not copy.rooted]
    sources = [copy for copy in copies if copy is not None and copy.rooted]
    if len(sources) < shape.least:
        return False
    for at in new:
        copy = copies[at]
        assert copy is not None
        copy.rooted = True
        blame_new(copies, at, files)
    return bool(new)


def is_whole(copy: Copy | None, newest: Mapping[str, int]) -> bool:
    """Whether it has all that was ever said to be written."""
    return copy is not None and all(copy.versions.get(file, 0) >= version for file, version in newest.items())


def _blames(copies: Copies, at: int, file: str) -> Mapping[int, None]:
    copy = copies[at]
    return copy.blames.get(file, {}) if copy is not None else {}


def _version(copies: Copies, at: int, file: str) -> int:
    copy = copies[at]
    return copy.versions.get(file, 0) if copy is not None else -1
