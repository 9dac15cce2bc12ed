"""Which wishes were found to be fulfilled, by which version of an object.

Most calls of a hook wish for what is there already, and merging three documents to find that out is most of the work
of deciding. A version of an object never changes, so what was found once holds for as long as it is the version that
is seen. This is a memory and no state: forgetting costs a merge.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from quartermaster.resources.codec import Document, encode_document
from quartermaster.resources.model import Object

_REMEMBERED = 65_536


class Fulfilled:
    """For each object and watched object the last wish that was found fulfilled. Bounded: the oldest go."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        self._limit = limit
        self._found: OrderedDict[tuple[str, str, bool], tuple[str, bytes]] = OrderedDict()

    def has(self, seen: Object, wish: Document, watch_uid: str, *, own: bool) -> bool:
        meta = seen.metadata
        found = self._found.get((meta.uid, watch_uid, own))
        return found is not None and found[0] == meta.resource_version and found[1] == _digest(wish)

    def note(self, seen: Object, wish: Document, watch_uid: str, *, own: bool) -> None:
        meta = seen.metadata
        if not meta.uid or not meta.resource_version:
            return  # it is not from a store, and says nothing about which version it is
        about = (meta.uid, watch_uid, own)
        self._found[about] = (meta.resource_version, _digest(wish))
        self._found.move_to_end(about)
        if len(self._found) > self._limit:
            self._found.popitem(last=False)


def _digest(wish: Document) -> bytes:
    return hashlib.blake2b(encode_document(wish), digest_size=16).digest()
