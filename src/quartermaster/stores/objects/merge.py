"""What merging does to documents: the differences between two, an intent laid over what is there, items taken out.

The rules and their corners are those of Kubernetes' structured-merge-diff, since a real API server is the judge of
them: null is not absent, an object that is empty on both sides is a leaf, items that are in a list twice are one.
"""

from __future__ import annotations

from typing import Any

from quartermaster.stores.objects.fields import FieldSet, Path, children_of, field_step, insert, is_member
from quartermaster.stores.objects.structure import ABSENT, ListType, MapType, Shape, Type, same


class Comparison:
    """Which fields differ between two documents."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: FieldSet = {}
        self.modified: FieldSet = {}
        self.removed: FieldSet = {}

    def values(self, type: Type, left: Any, right: Any, path: Path) -> None:
        if left is right or (type.exact and left == right):
            return
        shape = type.shape(left if right is ABSENT else right)
        if left is not ABSENT and right is not ABSENT:
            before = type.shape(left)
            if before != shape:
                self._as_shape(before, type, left, right, path=path)
        is_leaf = self._as_shape(shape, type, left, right, path=path)
        if not is_leaf and (left is ABSENT or right is ABSENT):
            self._leaves(left, right, path)

    def _as_shape(self, shape: Shape, type: Type, left: Any, right: Any, *, path: Path) -> bool:
        """Compare both as if they had that shape; True if they are compared as a whole."""
        if shape == "map" and type.map is not None:
            before = left if isinstance(left, dict) else {}
            after = right if isinstance(right, dict) else {}
            if not type.map.atomic and (before or after):
                self._maps(type.map, before, after, path)
                return False
        elif shape == "list" and type.list is not None:
            items_before = left if isinstance(left, list) else []
            items_after = right if isinstance(right, list) else []
            if not type.list.atomic and (items_before or items_after):
                self._lists(type.list, items_before, items_after, path)
                return False
        self._leaves(left, right, path)
        return True

    def _leaves(self, left: Any, right: Any, path: Path) -> None:
        if left is ABSENT:
            insert(self.added, path)
        elif right is ABSENT:
            insert(self.removed, path)
        elif not same(left, right):
            insert(self.modified, path)

    def _maps(self, type: MapType, left: dict[str, Any], right: dict[str, Any], path: Path) -> None:
        for name, before in left.items():
            after = right.get(name, ABSENT)
            if before is not after:
                self.values(type.child(name), before, after, (*path, field_step(name)))
        for name, after in right.items():
            if name not in left:
                self.values(type.child(name), ABSENT, after, (*path, field_step(name)))

    def _lists(self, type: ListType, left: list[Any], right: list[Any], path: Path) -> None:
        before, after = _by_step(type, left), _by_step(type, right)
        for step in [*before, *(step for step in after if step not in before)]:
            olds, news = before.get(step, []), after.get(step, [])
            where = (*path, step)
            if len(olds) <= 1 and len(news) <= 1:
                self.values(type.element, olds[0] if olds else ABSENT, news[0] if news else ABSENT, where)
            elif len(olds) >= 2 and len(news) >= 2:
                if not same(olds, news):
                    insert(self.modified, where)
            elif len(olds) >= 2:
                if news:
                    self.values(type.element, ABSENT, news[0], where)
                insert(self.removed, where)
            else:
                if olds:
                    self.values(type.element, olds[0], ABSENT, where)
                insert(self.added, where)


def compare(type: Type, left: dict[str, Any], right: dict[str, Any], ignored: frozenset[str]) -> Comparison:
    """The differences of two documents, except in the `ignored` fields of the first level."""
    result = Comparison()
    if type.map is not None:
        for name in [*left, *(name for name in right if name not in left)]:
            if name not in ignored:
                child = type.map.child(name)
                result.values(child, left.get(name, ABSENT), right.get(name, ABSENT), (field_step(name),))
    return result


def _by_step(type: ListType, items: list[Any]) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for step, item in type.steps(items):
        result.setdefault(step, []).append(item)
    return result


def merge(type: Type, live: Any, applied: Any) -> Any:
    """`applied` laid over `live`: nothing is taken out. Parts are shared with both."""
    if applied is ABSENT:
        return live
    if live is ABSENT:
        return applied
    shape = type.shape(applied)
    if shape == "map" and type.map is not None:
        before = live if isinstance(live, dict) else {}
        after = applied if isinstance(applied, dict) else {}
        if not type.map.atomic and (before or after):
            return _merge_maps(type.map, before, after)
    elif shape == "list" and type.list is not None:
        items_before = live if isinstance(live, list) else []
        items_after = applied if isinstance(applied, list) else []
        if not type.list.atomic and (items_before or items_after):
            return _merge_lists(type.list, items_before, items_after)
    return applied


def _merge_maps(type: MapType, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    result = dict(live)
    for name, value in applied.items():
        result[name] = merge(type.child(name), live.get(name, ABSENT), value)
    return result


def _merge_lists(type: ListType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items of both, in the order of `applied`; those that only `live` has stay where they were among the others."""
    old = list(type.steps(live))
    new = list(type.steps(applied))
    before: dict[str, Any] = {}
    for step, item in old:
        # Which of two equal items would be meant? Neither: the applied one replaces both.
        before[step] = item if step not in before else None
    after = dict(new)
    shared = [step for step, _ in new if step in before]
    result: list[Any] = []
    merged: set[str] = set()
    left = right = expected = 0
    while left < len(old) or right < len(new):
        if left < len(old):
            step, item = old[left]
            if right < len(new) and step != new[right][0]:
                wanted = shared[expected] if expected < len(shared) else None
                if step in after and wanted is not None and step != wanted:
                    left += 1
                    continue
            if step not in after:
                result.append(item)
                left += 1
                continue
            if step in merged or (right < len(new) and step == new[right][0]):
                left += 1
        if right < len(new):
            step = new[right][0]
            merged.add(step)
            result.append(merge(type.element, before.get(step, ABSENT), after[step]))
            right += 1
            if expected < len(shared) and shared[expected] == step:
                expected += 1
    return result


def without(type: Type, value: Any, fields: FieldSet) -> Any:
    """The value without the fields and items of the set. What is left of an emptied list or object is null."""
    shape = type.shape(value)
    if shape == "map" and type.map is not None:
        return _map_without(type.map, value, fields) if isinstance(value, dict) else None
    if shape == "list" and type.list is not None:
        return _list_without(type.list, value, fields) if isinstance(value, list) else None
    return value


def _map_without(type: MapType, value: dict[str, Any], fields: FieldSet) -> dict[str, Any] | None:
    if type.atomic:
        return None
    result = {}
    for name, child in value.items():
        node = fields.get("f:" + name)
        if node is None:
            result[name] = child
        elif not is_member(node):
            result[name] = without(type.child(name), child, children_of(node))
    return result or None


def _list_without(type: ListType, value: list[Any], fields: FieldSet) -> list[Any] | None:
    if type.atomic:
        return None
    result = []
    for step, item in type.steps(value):
        node = fields.get(step)
        if node is None:
            result.append(item)
        elif not is_member(node):
            result.append(without(type.element, item, children_of(node)))
    return result or None
