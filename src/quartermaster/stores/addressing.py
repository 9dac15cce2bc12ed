"""What may stand where a namespace is asked for. A read must not turn any text into a path or a range of keys."""

from __future__ import annotations

from functools import lru_cache

from quartermaster.resources.kind import Kind
from quartermaster.resources.names import check_dns_label
from quartermaster.support.errors import InvalidError, Problem

_check = lru_cache(maxsize=1024)(check_dns_label)


def require_namespace(info: Kind, namespace: str | None) -> None:
    """InvalidError when no object of the kind can be there; none and "" are for the caller to understand."""
    if namespace and info.namespaced and (wrong := _check(namespace)):
        problem = Problem("metadata.namespace", f'{wrong}; is "{namespace}"')
        raise InvalidError(f"cannot address {info.plural}", [problem])
