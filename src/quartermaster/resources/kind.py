"""What is known of a kind besides its fields, and where kinds are found by name.

A kind is declared once, by the decorator on its struct. The stores, the CRDs, the command line and the caches all
read it from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from quartermaster.resources.model import Object
from quartermaster.support.errors import InvalidError, Problem, UsageError

T = TypeVar("T", bound=Object)


class Column(msgspec.Struct, frozen=True):
    """A printer column: shown by `kubectl get` and by `qm get` alike."""

    name: str
    path: str  # a simple JSON path, as in a CRD: .spec.type
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    wide: bool = False  # only with -o wide
    description: str = ""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The declared facts of one kind."""

    group: str  # "" is the core group
    version: str
    kind: str
    plural: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()  # besides metadata.name and metadata.namespace
    categories: tuple[str, ...] = ()  # `kubectl get storage` lists all kinds of the category
    own: bool = False  # a kind that we define: it has a CRD
    status_subresource: bool = False
    generation: bool = False  # the store counts changes of what is neither metadata nor status
    stands_alone: bool = False  # it neither owns nor is owned, so the collector has no need to look at it
    # Which host may write it, read off its name: "name" = the whole name, "suffix" = what follows the first dot.
    host: Literal["", "name", "suffix"] = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def resource(self) -> str:
        """As kubectl prints it: storagenodes.coreos.com."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def host_of(self, name: str) -> str:
        """The host to which the object of that name belongs, "" if to none."""
        if self.host == "name":
            return name
        return name.partition(".")[2] if self.host == "suffix" else ""


_BY_CLASS: dict[type[Object], Kind] = {}
_BY_GVK: dict[tuple[str, str], type[Object]] = {}


def kind(**facts: Any) -> Callable[[type[T]], type[T]]:
    """Declare a kind: `@kind(group="coreos.com", version="v1", plural="storagenodes")`."""

    def register(cls: type[T]) -> type[T]:
        info = Kind(kind=facts.pop("kind", cls.__name__), **facts)
        _BY_CLASS[cls] = info
        _BY_GVK[info.api_version, info.kind] = cls
        return cls

    return register


def kind_of(item: type[Object] | Object) -> Kind:
    """The facts of a class or of an object."""
    return _BY_CLASS[item if isinstance(item, type) else type(item)]


def all_kinds() -> tuple[type[Object], ...]:
    """Every kind, in the order of declaration."""
    return tuple(_BY_CLASS)


def find_version(api_version: str, kind_name: str) -> type[Object] | None:
    """The class for an apiVersion and kind as they stand in a document."""
    return _BY_GVK.get((api_version, kind_name))


def applied_class(document: dict[str, Any]) -> type[Object]:
    """The class of what is to be applied; InvalidError if nobody knows it."""
    cls = find_version(document.get("apiVersion", ""), document.get("kind", ""))
    if cls is None:
        named = f"{document.get('apiVersion')}/{document.get('kind')}"
        raise InvalidError(
            "cannot apply the document", [Problem("kind", f"{named} is not known", "`qm explain` lists the kinds")]
        )
    return cls


def find(word: str) -> type[Object]:
    """The class for a word as a person types it: storagenode, storagenodes, sn, storagenodes.coreos.com."""
    wanted = word.lower()
    known: list[str] = []
    for cls, info in _BY_CLASS.items():
        words = {info.plural, info.singular, *info.short_names, info.resource, f"{info.singular}.{info.group}"}
        if wanted in words:
            return cls
        known += [info.plural, info.singular, *info.short_names]
    import difflib  # only for the hint: the kinds are imported by every command

    near = difflib.get_close_matches(wanted, known, n=1)
    raise UsageError(
        f'cannot find a kind named "{word}"',
        hint=f'did you mean "{near[0]}"?' if near else "`qm explain` lists the kinds",
    )
