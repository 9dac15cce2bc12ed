"""Whether anybody runs the operators, as far as a command can tell that looks once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quartermaster.support import clock

if TYPE_CHECKING:
    from quartermaster.resources import Lease
    from quartermaster.stores import Store

_PATIENCE = 4  # durations of a Lease


async def somebody_leads(store: Store, namespace: str | None) -> bool:
    """In that namespace, or in any for None. Operators of one storage system each have Leases of longer names."""
    from quartermaster.engine.election import LEADER_LEASE
    from quartermaster.resources import Lease

    for lease in (await store.list(Lease, namespace)).items:
        if lease.metadata.name.startswith(LEADER_LEASE):
            held = await store.lease_held(lease.metadata.namespace, lease.metadata.name)
            if held or (held is None and _is_fresh(lease)):
                return True
    return False


def _is_fresh(lease: Lease) -> bool:
    """By our own clock, which may differ from the leader's: so with patience."""
    from quartermaster.engine.election import LEASE_S

    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return False
    age_s = clock.wall_time() - clock.parse_timestamp(spec.renew_time)
    return age_s < _PATIENCE * (spec.lease_duration_seconds or LEASE_S)
