"""Which objects a person means: TYPE, TYPE NAME…, TYPE/NAME…, TYPE1,TYPE2, a category, or `all`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from quartermaster.resources import Object, all_kinds, find, kind_of
from quartermaster.support.errors import UsageError

ALL = "all"


class Target(msgspec.Struct, frozen=True):
    """A kind, and the names of the objects that are meant; none: all of them."""

    kind: type[Object]
    names: tuple[str, ...] = ()


class Targets(msgspec.Struct, frozen=True):
    """What was asked for."""

    items: tuple[Target, ...]
    category: bool = False  # a word that stands for several kinds, some of which a server may not know

    @property
    def named(self) -> bool:
        return any(target.names for target in self.items)


def parse_targets(words: Sequence[str]) -> Targets:
    """UsageError says what cannot be understood."""
    if not words:
        raise UsageError(
            "cannot tell which objects are meant", hint="for example `storagenodes`; `qm explain` lists the kinds"
        )
    if any("/" in word for word in words):
        return Targets(_slashed(words))
    types, names = words[0], tuple(words[1:])
    kinds: dict[type[Object], None] = {}
    category = False
    for word in filter(None, types.split(",")):
        members = () if names else kinds_in(word)
        category = category or bool(members)
        kinds.update(dict.fromkeys(members or (find(word),)))
    if not kinds:
        raise UsageError(f'cannot find a kind in "{types}"', hint="`qm explain` lists the kinds")
    return Targets(tuple(Target(kind, names) for kind in kinds), category)


def kinds_in(word: str) -> tuple[type[Object], ...]:
    """The kinds of a category; `all` is every kind of ours. Empty when there is no such category."""
    if word.lower() == ALL:
        return tuple(cls for cls in all_kinds() if kind_of(cls).own)
    return tuple(cls for cls in all_kinds() if word.lower() in kind_of(cls).categories)


def full_name(kind: type[Object], name: str) -> str:
    """As kubectl names an object: storagenode.coreos.com/storage-node1."""
    info = kind_of(kind)
    return f"{info.singular}.{info.group}/{name}" if info.group else f"{info.singular}/{name}"


def _slashed(words: Sequence[str]) -> tuple[Target, ...]:
    found: dict[type[Object], list[str]] = {}
    for word in words:
        kind, _, name = word.partition("/")
        if not kind or not name or "/" in name:
            raise UsageError(
                f'cannot tell which object "{word}" is', hint="write either TYPE NAME … or TYPE/NAME TYPE/NAME …"
            )
        found.setdefault(find(kind), []).append(name)
    return tuple(Target(kind, tuple(names)) for kind, names in found.items())
