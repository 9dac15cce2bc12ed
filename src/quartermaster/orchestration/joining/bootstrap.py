"""The first host: an authority, one member of etcd under TLS with access control, and the objects that say so.

Every step can be repeated. Until the last one the authority's key lies in the state directory, so that a run that was
cut off is completed by the next; then it is a Secret in the store, and the file goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from quartermaster.backends.etcd.agent import start_member
from quartermaster.backends.etcd.member import LocalMember, MemberConfig, endpoint, initial_cluster
from quartermaster.backends.etcd.memory import Memory, first_memory, member_name, to_object
from quartermaster.backends.etcd.tool import CLIENT_PORT, DAEMON, PEER_PORT, PROGRAM
from quartermaster.host import Command, Host
from quartermaster.host.files import remove, write_whole
from quartermaster.orchestration.joining.access import StoreAccess, read_access, write_access
from quartermaster.orchestration.joining.authority import Authority, save_authority
from quartermaster.orchestration.joining.certificates import HostCertificates
from quartermaster.orchestration.joining.profiles import HOST, MEMBER_CERTIFICATES, as_joined, profile_of
from quartermaster.resources.model import Object, ObjectMeta
from quartermaster.resources.orchestration import Host as HostObject
from quartermaster.resources.orchestration import HostSpec
from quartermaster.stores.base import Store
from quartermaster.support import clock, entropy
from quartermaster.support.errors import AlreadyExistsError, ConflictError, DaemonError, UsageError

READY_S = 60.0
_LOOK_S = 0.1
_SHOWN_LINES = 10


class _Draft(msgspec.Struct, frozen=True):
    """What must stay the same when a run that was cut off is repeated."""

    certificate: str
    key: str
    config: MemberConfig

    def __repr__(self) -> str:
        return "_Draft()"


async def bootstrap(
    directory: Path,
    host: str,
    addresses: Sequence[str],
    *,
    machine: Host,
    namespace: str = "default",
    client_port: int = CLIENT_PORT,
    peer_port: int = PEER_PORT,
    flags: Sequence[str] = (),
) -> StoreAccess:
    """Make a cluster of this host, or start the member of the one that it belongs to. ToolMissingError without etcd.

    `addresses` are those of the host, first the one on which etcd is to listen.
    """
    known = read_access(directory)
    if known is not None:
        await start_member(LocalMember(directory), machine)
        return known
    if not addresses:
        raise UsageError(f"cannot make a cluster of host {host}: it has no address", hint="name one with --address")
    if not _draft_path(directory).exists() and LocalMember(directory).read() is not None:
        raise ConflictError(
            f"cannot make a cluster of host {host}: {directory / 'etcd'} holds a member of another one",
            hint="its access.json is gone; put it back, or move that directory away if nothing in it is needed",
        )
    await machine.commands.run(
        Command((PROGRAM, "--version"), verb="ask etcd for its version", timeout_s=10.0, changes=False)
    )
    config = MemberConfig(
        member=member_name(1),
        address=addresses[0],
        client_port=client_port,
        peer_port=peer_port,
        cluster=f"quartermaster-{entropy.name_suffix(12)}",
        new_cluster=True,
        flags=tuple(flags),
    )
    draft = _draft(directory, config)
    authority = Authority(draft.certificate.encode(), draft.key.encode())
    # As good as a token's id: of this cluster, and never given again.
    joined = draft.config.cluster.rpartition("-")[2]
    _certify(directory, authority, host, addresses, joined=joined, member=draft.config.member)
    local = LocalMember(directory)
    local.write(draft.config)
    await start_member(local, machine)
    access = StoreAccess(
        directory=str(directory),
        host=host,
        namespace=namespace,
        joined=joined,
        endpoints=(endpoint(draft.config.address, draft.config.client_port),),
    )
    await _until_ready(access, draft.config, machine)
    await _open_up(access, authority, first_memory(draft.config.cluster, host, draft.config), addresses)
    local.write(msgspec.structs.replace(draft.config, new_cluster=False, begun=True))
    write_access(access)
    remove(_draft_path(directory))
    return access


def _draft(directory: Path, config: MemberConfig) -> _Draft:
    path = _draft_path(directory)
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Draft)
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Authority.create(now=clock.wall_time())
    complete = msgspec.structs.replace(config, initial=initial_cluster([(config.member, config.peer_url)]))
    draft = _Draft(made.certificate.decode(), made.key.decode(), complete)
    write_whole(path, msgspec.json.encode(draft))
    return draft


def _draft_path(directory: Path) -> Path:
    return directory / "bootstrap.json"


def _certify(
    directory: Path, authority: Authority, host: str, addresses: Sequence[str], *, joined: str, member: str
) -> None:
    files = HostCertificates(directory)
    files.write_authority(authority.certificate)
    installed = files.installed()
    for name in (HOST, *MEMBER_CERTIFICATES):
        profile = profile_of(name, host, addresses, member=member)
        if name not in installed or installed[name].profile != profile.digest:
            says = as_joined(profile, host, joined) if name == HOST else profile
            issued = authority.sign(files.request(name), says, now=clock.wall_time())
            files.install(name, issued, profile.digest)


async def _until_ready(access: StoreAccess, config: MemberConfig, machine: Host) -> None:
    from quartermaster.backends.etcd.client import EtcdClient
    from quartermaster.stores.kv.etcd.settings import parse

    tool = EtcdClient(parse(access.leader_url, {}))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_S
    try:
        while await tool.status(config.client_url) is None:
            if loop.time() > deadline or not (await machine.daemons.status(DAEMON)).running:
                said = (await machine.daemons.logs(DAEMON, lines=_SHOWN_LINES)).strip()
                raise DaemonError(
                    f"cannot start etcd on {config.address}: {said or 'it says nothing'}",
                    hint="is another etcd running here, or is the address not this host's?",
                )
            await asyncio.sleep(_LOOK_S)
    finally:
        await tool.close()


async def _open_up(access: StoreAccess, authority: Authority, memory: Memory, addresses: Sequence[str]) -> None:
    """Access control first, then what is worth guarding."""
    from quartermaster.backends.etcd.authorizing import EtcdAuthorization
    from quartermaster.stores import open_store
    from quartermaster.stores.kv.etcd.settings import parse

    users = EtcdAuthorization(parse(access.leader_url, {}), namespace=access.namespace)
    store = await open_store(access.leader_url)
    try:
        await users.enable(access.host, member_name(1))
        await users.ensure_host(access.host, access.joined)
        await save_authority(store, access.namespace, authority)
        await _ensure(store, to_object(memory, access.namespace))
        meta = ObjectMeta(name=access.host, namespace=access.namespace)
        await _ensure(store, HostObject(metadata=meta, spec=HostSpec(addresses=tuple(addresses))))
    finally:
        await users.close()
        await store.close()


async def _ensure(store: Store, wanted: Object) -> None:
    with suppress(AlreadyExistsError):
        await store.create(wanted)
