"""The entries that were read or written last: who reads an object, changes it and writes it back reads it once."""

from __future__ import annotations

from quartermaster.stores.kv.base import Entry

_KEPT = 128


class Remembered:
    """Never an answer to a reader: an entry from here only says what a version looked like that the caller names.

    Whether that version is still the one in the store is decided by the transaction that compares its revision.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}  # the one that was used longest ago comes first

    def keep(self, entry: Entry) -> None:
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry
        if len(self._entries) > _KEPT:
            del self._entries[next(iter(self._entries))]

    def version(self, key: str, revision: str) -> Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and str(entry.modified) == revision else None
