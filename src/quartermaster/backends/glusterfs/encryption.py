"""TLS between the nodes of a pool and to its clients, where the cluster's settings ask for it.

Certificates are the administrator's, in the files where gluster looks for them; keys never pass through the store. What
gluster reads once at its start cannot change under a pool that runs: what the first node was set up with holds.
"""

from __future__ import annotations

from quartermaster.backends.glusterfs.facts import NODE
from quartermaster.host import Command, Host
from quartermaster.planning.cluster import ClusterView
from quartermaster.support.errors import HostError

# Where this file is, every program of gluster on the host uses TLS to reach and to be a glusterd.
SECURE_ACCESS = "/var/lib/glusterd/secure-access"
# The directory of OpenSSL, by distribution; gluster looks in the one that it was built with.
PLACES = ("/usr/lib/ssl", "/etc/ssl", "/etc/pki/tls")
FILES = ("glusterfs.pem", "glusterfs.key", "glusterfs.ca")
VOLUME_OPTIONS = {"client.ssl": "on", "server.ssl": "on"}
_MARK = b"# Quartermaster: the StorageCluster of this node asks for TLS\n"
_REMOVE_S = 10.0


def uses_tls(view: ClusterView) -> bool:
    """By how the nodes are set up; by the settings while none is."""
    reports = [node.report(NODE) for node in view.nodes]
    told = [report.desired for report in reports if report is not None and report.desired is not None]
    return bool(told[0].get("tls")) if told else view.settings.tls


def what_differs(view: ClusterView) -> str:
    """For people: why a setting has no effect."""
    if uses_tls(view) == view.settings.tls:
        return ""
    on = "with" if uses_tls(view) else "without"
    return f"the pool was set up {on} TLS, which holds until its last node is gone"


async def secure(machine: Host) -> None:
    """Before glusterd starts. HostError where certificates are missing."""
    found = {place: [name for name in FILES if await _is_there(machine, f"{place}/{name}")] for place in PLACES}
    place, names = max(found.items(), key=lambda one: len(one[1]))
    missing = [f"{place}/{name}" for name in FILES if name not in names]
    if missing:
        raise HostError(
            f"cannot start glusterd with TLS: {', '.join(missing)} is not there",
            hint="put the host's certificate, its key and the certificates of the authority there (all PEM)",
        )
    if not await _is_there(machine, SECURE_ACCESS):
        await machine.directories.write(SECURE_ACCESS, _MARK)


async def refuse_plain(machine: Host) -> None:
    """For a glusterd that is somebody else's: how it runs is his to say."""
    if not await _is_there(machine, SECURE_ACCESS):
        raise HostError(
            "cannot use the glusterd of this host: it runs without TLS, and somebody else has started it",
            hint=f"stop it, or start it again with {SECURE_ACCESS} in place",
        )


async def unsecure(machine: Host) -> None:
    """After the end of glusterd; one that somebody else has put there stays."""
    if await machine.directories.read(SECURE_ACCESS) == _MARK:
        argv = ("rm", "--force", "--", SECURE_ACCESS)
        await machine.commands.run(Command(argv, verb="end the use of TLS by gluster", timeout_s=_REMOVE_S))


async def refuse_without_tls(machine: Host, volume: str) -> None:
    """A client that asks without TLS would wait for an answer that does not come."""
    if not await _is_there(machine, SECURE_ACCESS):
        raise HostError(
            f"cannot mount {volume}: it is served with TLS, and this host is not set up for it",
            hint=f"put {', '.join(FILES)} into {PLACES[0]} and make the file {SECURE_ACCESS}",
        )


async def _is_there(machine: Host, path: str) -> bool:
    return await machine.directories.read(path) is not None
