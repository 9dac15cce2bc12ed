"""Who is let in as a host, and what that does, in an order in which each step may be repeated.

A machine that comes in under a name has nothing of whoever had the name before: their users are deleted, so that their
certificates open nothing, and a member of etcd that was on that host is removed, because its data are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from quartermaster.backends.etcd.memory import MEMORY_NAME, Book, from_object, with_seat
from quartermaster.backends.etcd.users import EtcdUsers
from quartermaster.orchestration.joining.authority import key_digest, load_authority
from quartermaster.orchestration.joining.profiles import HOST, LIFETIME_S, as_joined, profile_of
from quartermaster.orchestration.joining.tokens import TokenRecord, examine, redeem
from quartermaster.orchestration.joining.wire import Request, Welcome
from quartermaster.planning.health import READY
from quartermaster.resources.kubernetes.core import ConfigMap
from quartermaster.resources.marks import DOMAIN, LEAVING
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host, HostSpec
from quartermaster.stores.base import Store
from quartermaster.support import clock
from quartermaster.support.addresses import same_address
from quartermaster.support.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from quartermaster.support.log import logger

_EVERYWHERE = ("127.0.0.1", "::1")
JOINED_WITH = f"{DOMAIN}/joined-with"  # on a Host: the token that it came with

_log = logger("orchestration.joining")


class Admission:
    """What stands behind the endpoint for hosts that join."""

    def __init__(self, store: Store, users: EtcdUsers, *, namespace: str, lifetime_s: float = LIFETIME_S) -> None:
        self._store = store
        self._users = users
        self._namespace = namespace
        self._lifetime_s = lifetime_s

    async def admit(self, request: Request) -> Welcome:
        """Nothing is used up before all that can be checked was: a mistake costs no token."""
        key = key_digest(request.request)
        authority = await load_authority(self._store, self._namespace)
        with suppress(AlreadyExistsError):  # whether that can be a host's name at all
            await self._store.create(self._fresh(request), dry_run=True)
        shown = (self._store, self._namespace, request.token, request.secret)
        record = await examine(*shown, host=request.host, key=key)
        if wrong := why_not(await self._known(request.host), record, request.host):
            raise wrong
        if wrong := whose_address((await self._store.list(Host, self._namespace)).items, request):
            raise wrong
        record = await redeem(*shown, host=request.host, key=key)
        await self._register(request, record)
        await self._users.ensure_host(request.host, record.id)
        profile = profile_of(HOST, request.host, ())
        says = as_joined(profile, request.host, record.id)
        issued = authority.sign(request.request, says, now=clock.wall_time(), lifetime_s=self._lifetime_s)
        _log.info("a host has joined", host=request.host, token=request.token)
        return Welcome(
            host=request.host,
            namespace=self._namespace,
            joined=record.id,
            endpoints=await self._endpoints(),
            certificate=issued.certificate,
            profile=profile.digest,
            not_before=issued.not_before,
            not_after=issued.not_after,
        )

    async def _register(self, request: Request, record: TokenRecord) -> None:
        """The Host is made here, so that two machines of one name cannot both be it.

        It says which token it came with last: what is done to the machine before is not done to this one when an
        answer was lost and is asked for again.
        """
        known = await self._known(request.host)
        if known is not None and came_with(known, record):
            return
        await self._release(request.host)
        await self._users.remove_leaders(request.host)
        if known is None:
            await self._store.create(self._fresh(request))
            return
        annotations = {name: value for name, value in known.metadata.annotations.items() if name != LEAVING}
        meta = replace(known.metadata, annotations={**annotations, JOINED_WITH: record.id})
        spec = replace(known.spec, addresses=request.addresses)
        await self._store.update(replace(known, metadata=meta, spec=spec))

    async def _release(self, host: str) -> None:
        """The member of the machine that had this name; what it knew is not on this one."""
        book = Book(self._store, await self._store.get(ConfigMap, MEMORY_NAME, self._namespace))
        seat = book.memory.at(host)
        if seat is not None and seat.phase != "removing":
            why = f"another machine takes the place of host {host}"
            await book.write(with_seat(book.memory, replace(seat, phase="removing", why=why)))

    async def _known(self, host: str) -> Host | None:
        try:
            return await self._store.get(Host, host, self._namespace)
        except NotFoundError:
            return None

    async def _endpoints(self) -> tuple[str, ...]:
        memory = from_object(await self._store.get(ConfigMap, MEMORY_NAME, self._namespace))
        serving = [seat.config.client_url for seat in memory.seats if seat.phase == "serving"]
        return tuple(url.partition("://")[2] for url in serving)

    def _fresh(self, request: Request) -> Host:
        meta = ObjectMeta(name=request.host, namespace=self._namespace, annotations={JOINED_WITH: request.token})
        return Host(metadata=meta, spec=HostSpec(addresses=request.addresses))


def why_not(known: Host | None, record: TokenRecord, name: str) -> ForbiddenError | None:
    """Why a machine with a good token cannot be the host of that name; `known` has the name now."""
    if known is None or came_with(known, record):
        return None
    if record.host != name:
        return ForbiddenError(
            f"cannot join as {name}: a host of that name is in the cluster",
            hint=f"give this one another name, or replace it with a token of `qm token create --host {name}`",
        )
    if known.status.state == READY:
        return ForbiddenError(
            f"cannot take the place of host {name}: it is there and gives signs of life",
            hint="stop it with `qm down`, and try again when `qm get hosts` shows it silent: the token stays good",
        )
    return None


def whose_address(hosts: Sequence[Host], request: Request) -> ForbiddenError | None:
    """Why a machine cannot come in under its addresses: another host is looked for at one of them.

    The first is where a host is reached. Of the others some may be on many hosts, as those of bridges for containers.
    """
    mine = _telling(request.addresses)
    for host in hosts:
        theirs = _telling(host.spec.addresses)
        meant = [one for one in mine[:1] if any(same_address(one, other) for other in theirs)]
        meant += [one for one in theirs[:1] if any(same_address(one, other) for other in mine)]
        if meant and host.metadata.name != request.host:
            name = host.metadata.name
            return ForbiddenError(
                f"cannot join as {request.host}: the address {meant[0]} is that of host {name}",
                hint=f"name one of its own with --address; if {name} is gone for good, `qm delete host {name}` first",
            )
    return None


def _telling(addresses: Sequence[str]) -> list[str]:
    """Without those that every host has, and that tell none from another."""
    return [one for one in addresses if one not in _EVERYWHERE]


def came_with(known: Host, record: TokenRecord) -> bool:
    return known.metadata.annotations.get(JOINED_WITH) == record.id
