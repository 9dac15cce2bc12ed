"""Which volume is meant: its id, from the data where they say it, else from what it is."""

from __future__ import annotations

import msgspec

from quartermaster.connectors.model import ConnectionInfo
from quartermaster.connectors.names import digest_of
from quartermaster.connectors.payload import lookup


def volume_id_of(info: ConnectionInfo, place: msgspec.Struct) -> str:
    """From the data, else `volume_id` or `serial` beside them, else a hash of the driver and what identifies it."""
    return (
        lookup(info.data, "volume_id")
        or lookup(info.others, "volume_id")
        or lookup(info.others, "serial")
        or _hash(info.driver_type, place)
    )


def _hash(type: str, place: msgspec.Struct) -> str:
    return f"{type.lower()}-{digest_of(msgspec.json.encode(place, order='sorted').decode())}"
