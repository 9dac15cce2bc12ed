"""What is filled in when a document is admitted, as an API server does it.

Defaults are filled into objects that exist: `glusterfs: {}` gets its zone, a node without that section gets none.
A field that is null counts as not given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

from quartermaster.resources.kind import find_version
from quartermaster.resources.model import Object
from quartermaster.resources.rules import preparation_of
from quartermaster.resources.schema import Schema, full_schema_of

Document = dict[str, Any]
_Filler = Callable[[Any], Any]


def fill_defaults(document: Document) -> Document:
    """The document with defaults; the same one if there is nothing to fill in. The argument is not changed."""
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return document
    cls = find_version(api_version, kind)
    if cls is None:
        return document
    if (preparation := preparation_of(cls)) is not None:
        document = preparation(document)
    filled: Document = _filler_of(cls)(document)
    return filled


@cache
def _filler_of(cls: type[Object]) -> _Filler:
    return _filler(full_schema_of(cls)) or (lambda value: value)


def _filler(schema: Schema) -> _Filler | None:
    if "properties" in schema:
        return _fill_object(schema)
    if (items := schema.get("items")) and (fill := _filler(items)):
        return _fill_list(fill)
    if values := schema.get("additionalProperties"):
        return _fill_map(_filler(values))
    return None


def _fill_object(schema: Schema) -> _Filler:
    properties: dict[str, Schema] = schema["properties"]
    fillers = {name: _filler(child) for name, child in properties.items()}
    defaults = {name: child["default"] for name, child in properties.items() if "default" in child}
    compound = {name for name, default in defaults.items() if isinstance(default, (dict, list))}

    def fill(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        filled = value
        for name, child in value.items():
            if child is None:
                if name not in fillers:
                    continue
                if filled is value:
                    filled = value.copy()
                del filled[name]
            elif (fill_child := fillers.get(name)) is not None:
                new = fill_child(child)
                if new is not child:
                    if filled is value:
                        filled = value.copy()
                    filled[name] = new
        for name, default in defaults.items():
            if name not in filled:
                if filled is value:
                    filled = value.copy()
                filled[name] = copy.deepcopy(default) if name in compound else default
        return filled

    return fill


def _fill_list(fill_item: _Filler) -> _Filler:
    def fill(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        filled = [fill_item(item) for item in value]
        return filled if any(new is not old for new, old in zip(filled, value, strict=True)) else value

    return fill


def _fill_map(fill_child: _Filler | None) -> _Filler:
    def fill(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        filled = {
            name: fill_child(child) if fill_child is not None else child
            for name, child in value.items()
            if child is not None
        }
        if len(filled) == len(value) and all(filled[name] is value[name] for name in filled):
            return value
        return filled

    return fill
