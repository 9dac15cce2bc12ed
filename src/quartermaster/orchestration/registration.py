"""A host makes itself known: its Host object, with what its agent was started with and what it found.

The agent owns the addresses, the wishes and the labels it sets or was told to take back; labels of others stay. Written
only when something differs, so that a restart of the agent is no news to the leader.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from quartermaster import __version__
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostSpec, Inventory, Wishes
from quartermaster.stores.base import Store
from quartermaster.stores.modify import modify
from quartermaster.support.errors import AlreadyExistsError, NotFoundError


class Registration(msgspec.Struct, frozen=True):
    """What the host says of itself."""

    name: str
    namespace: str
    addresses: tuple[str, ...] = ()
    labels: Mapping[str, str | None] = {}  # None: taken back
    wishes: Wishes | None = None  # None: those of an earlier start stay


async def register(store: Store, registration: Registration) -> Host:
    """The Host object, as the registration wants it."""
    name, namespace = registration.name, registration.namespace
    try:
        return await modify(store, Host, name, namespace, lambda host: described(host, registration))
    except NotFoundError:
        fresh = described(Host(metadata=ObjectMeta(name=name, namespace=namespace)), registration)
    try:
        return await store.create(fresh)
    except AlreadyExistsError:
        return await modify(store, Host, name, namespace, lambda host: described(host, registration))


def described(host: Host, registration: Registration) -> Host:
    own = {key: value for key, value in registration.labels.items() if value is not None}
    others = {key: value for key, value in host.metadata.labels.items() if key not in registration.labels}
    labels = {**others, HOSTNAME_LABEL: registration.name, **own}
    wishes = registration.wishes if registration.wishes is not None else host.spec.wishes
    return replace(
        host,
        metadata=replace(host.metadata, labels=labels),
        spec=HostSpec(addresses=registration.addresses or host.spec.addresses, wishes=wishes),
    )


async def publish(store: Store, registration: Registration, inventory: Inventory) -> bool:
    """Write what was found; whether that was news. A Host that somebody deleted is made again."""

    def filled(host: Host) -> Host:
        return replace(host, status=replace(host.status, inventory=inventory, agent_version=__version__))

    if not registration.addresses:
        registration = replace(registration, addresses=inventory.addresses)
    known = await register(store, registration)
    if filled(known) == known:
        return False
    await modify(store, Host, registration.name, registration.namespace, filled, status=True)
    return True
