"""Where an API server keeps the objects of a kind."""

from __future__ import annotations

from functools import cache
from urllib.parse import quote, urlencode

from quartermaster.resources.kind import Kind, kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.names import DEFAULT_NAMESPACE
from quartermaster.stores.addressing import require_namespace
from quartermaster.support.errors import InvalidError, Problem


def collection_path(kind: type[Object], namespace: str | None) -> str:
    """All objects of a kind in a namespace; None is all namespaces, "" the default one."""
    root, info = _root(kind)
    if not info.namespaced or namespace is None:
        return f"{root}/{info.plural}"
    if not namespace:
        return f"{root}/namespaces/{DEFAULT_NAMESPACE}/{info.plural}"
    require_namespace(info, namespace)
    return f"{root}/namespaces/{namespace}/{info.plural}"


def object_path(kind: type[Object], namespace: str, name: str) -> str:
    return f"{collection_path(kind, namespace)}/{_segment(_root(kind)[1], name)}"


def query(**parameters: str | int) -> str:
    """The parameters that are set, as `?a=b&c=d`, or nothing."""
    given = {name: value for name, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


def default_namespace(info: Kind, namespace: str) -> str:
    """Where an object is that does not say: nowhere if its kind has no namespaces."""
    return (namespace or DEFAULT_NAMESPACE) if info.namespaced else ""


def _segment(info: Kind, text: str) -> str:
    # Without a name the path would be the whole collection's, and dots lead out of it.
    if text in ("", ".", ".."):
        problem = Problem("metadata.name", f'"{text}" is not a name' if text else "is missing")
        raise InvalidError(f"cannot address {info.singular}", [problem])
    return quote(text, safe="")


@cache
def _root(kind: type[Object]) -> tuple[str, Kind]:
    info = kind_of(kind)
    return (f"/apis/{info.group}/{info.version}" if info.group else f"/api/{info.version}"), info
