"""Which Host each StorageNode is, and what makes a declaration impossible.

Every complaint is about one node, and is a sentence for whoever wrote it; the other nodes go on. A node that has a host
keeps it as long as its selector still matches it or something was deployed there, whoever else wants that host, and
also while the Host itself is not to be found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

import msgspec

from quartermaster.planning.cluster import Verdict
from quartermaster.planning.outcomes import giving_up
from quartermaster.resources.marks import ABANDON, DRAIN, HOSTNAME_LABEL, NODE_FINALIZER
from quartermaster.resources.model import ObjectMeta
from quartermaster.resources.orchestration import Host
from quartermaster.resources.storage import DEFAULT_CLUSTER, StorageNode, cluster_of

NO_HOST = "NoHost"
SEVERAL_HOSTS = "SeveralHosts"
SAME_HOST = "SameHost"
HOST_CHANGED = "HostChanged"
ADDRESS_NOT_ON_HOST = "AddressNotOnHost"
SAME_ADDRESS = "SameAddress"
STILL_ELSEWHERE = "StillElsewhere"

_NAMED = 3  # how many hosts a sentence names


class Match(msgspec.Struct, frozen=True):
    """The host of one node; `wrong` says why nothing can be planned, `complaint` what is wrong beside that."""

    host: Host | None = None
    wrong: Verdict | None = None
    complaint: Verdict | None = None


def home_of(node: StorageNode) -> str:
    """The cluster that has the node now: its old one until it has left that."""
    if node.status.cluster and NODE_FINALIZER in node.metadata.finalizers:
        return node.status.cluster
    return cluster_of(node)


def first_come(nodes: Sequence[StorageNode]) -> list[StorageNode]:
    """Where two nodes want the same, the one that was there first has it."""
    return sorted(nodes, key=lambda node: (node.metadata.creation_timestamp or "", node.metadata.name))


def match_hosts(
    nodes: Sequence[StorageNode],
    hosts: Sequence[Host],
    *,
    more_labels: Mapping[str, Mapping[str, str]] | None = None,
    deployed: Mapping[str, Sequence[str]] | None = None,
    sharing: Sequence[str] = (),
) -> dict[str, Match]:
    """By name of the node. `deployed`: type → hosts that have something of it; `sharing`: types that share hosts."""
    finder = _Finder(hosts, more_labels or {})
    taken: dict[tuple[str, str, str], str] = {}
    addresses: dict[tuple[str, str], str] = {}
    matches: dict[str, Match] = {}
    known = {kind: dict.fromkeys(names) for kind, names in (deployed or {}).items()}
    serving: list[StorageNode] = []
    others: list[StorageNode] = []
    for node in first_come(nodes):
        (serving if _is_deployed(node, known.get(node.spec.type, {})) else others).append(node)
    for node in (*serving, *others):
        match = finder.find(node, known.get(node.spec.type, {}))
        if match.host is not None:
            wrong = (
                _same_host(node, match.host, taken, shared=node.spec.type in sharing)
                or (_foreign_address(node, match.host) if finder.knows(match.host) else None)
                or _same_address(node, addresses)
            )
            match = msgspec.structs.replace(match, wrong=wrong)
        matches[node.metadata.name] = match
    return matches


class _Finder:
    def __init__(self, hosts: Sequence[Host], more_labels: Mapping[str, Mapping[str, str]]) -> None:
        self._hosts = {host.metadata.name: host for host in hosts}
        self._more_labels = more_labels
        self._by_label: dict[tuple[str, str], list[str]] = {}
        for name in self._hosts:
            for pair in self._labels_of(name).items():
                self._by_label.setdefault(pair, []).append(name)

    def _labels_of(self, name: str) -> Mapping[str, str]:
        own, more = self._hosts[name].metadata.labels, self._more_labels.get(name)
        return own if not more and HOSTNAME_LABEL in own else {HOSTNAME_LABEL: name, **(more or {}), **own}

    def knows(self, host: Host) -> bool:
        """Whether it is there; of one that was deleted no addresses are known."""
        return host.metadata.name in self._hosts

    def find(self, node: StorageNode, deployed: Mapping[str, object]) -> Match:
        found = self._matching(node.spec.node_selector)
        bound = self._bound(node, deployed, found)
        if bound is not None:
            return bound
        if len(found) == 1:
            return Match(self._hosts[found[0]])
        selector = _selector_text(node.spec.node_selector)
        if not found:
            message = f"no host has the labels {selector}" if selector else "no host has joined yet"
            return Match(wrong=Verdict(False, NO_HOST, message))
        which = f"match the labels {selector}" if selector else "match, for no label is asked for"
        message = f"{_names(found)} {which}; a node is one host"
        return Match(wrong=Verdict(False, SEVERAL_HOSTS, message))

    def _bound(self, node: StorageNode, deployed: Mapping[str, object], found: Sequence[str]) -> Match | None:
        """The host that it has already, if it keeps that."""
        bound = node.status.host
        if bound in self._hosts and NODE_FINALIZER in node.metadata.finalizers:
            if bound in found and len(found) == 1:
                return Match(self._hosts[bound])
            return Match(self._hosts[bound], complaint=_host_changed(node, found)) if bound in deployed else None
        if bound in self._hosts or not _is_deployed(node, deployed):
            return None
        # Its Host was deleted, and what it runs was not.
        if not _is_to_go(node):
            return Match(wrong=_host_deleted(node))
        # It is to clear that away if it ever comes back.
        return Match(Host(metadata=ObjectMeta(name=bound, namespace=node.metadata.namespace)))

    def _matching(self, selector: Mapping[str, str]) -> list[str]:
        if not selector:
            return list(self._hosts)
        fewest = min((self._by_label.get(pair, []) for pair in selector.items()), key=len)
        if len(selector) == 1:
            return fewest
        wanted = selector.items()
        return [name for name in fewest if wanted <= self._labels_of(name).items()]


def _is_deployed(node: StorageNode, deployed: Mapping[str, object]) -> bool:
    return node.status.host in deployed and NODE_FINALIZER in node.metadata.finalizers


def _is_to_go(node: StorageNode) -> bool:
    marks = node.metadata.annotations
    return node.metadata.deletion_timestamp is not None or DRAIN in marks or marks.get(ABANDON) == node.status.host


def _host_deleted(node: StorageNode) -> Verdict:
    message = (
        f"host {node.status.host} was deleted, and the node's storage is on it; the node waits until it joins again, "
        f"or {giving_up(node.metadata.name)}"
    )
    return Verdict(False, NO_HOST, message)


def _host_changed(node: StorageNode, found: Sequence[str]) -> Verdict:
    now = f"matches {_names(found)}" if found else "matches no host"
    message = (
        f"nodeSelector now {now}, and the node's storage is on host {node.status.host}, where it stays; "
        "remove this node and declare another one to move it"
    )
    return Verdict(False, HOST_CHANGED, message)


def _same_host(
    node: StorageNode, host: Host, taken: dict[tuple[str, str, str], str], *, shared: bool
) -> Verdict | None:
    key = (node.spec.type, home_of(node) if shared else "", host.metadata.name)
    other = taken.setdefault(key, node.metadata.name)
    if other == node.metadata.name:
        return None
    message = f"host {host.metadata.name} is StorageNode {other} already, and a host is one node of type {key[0]}"
    return Verdict(False, SAME_HOST, message + (f" in cluster {key[1]}" if key[1] not in ("", DEFAULT_CLUSTER) else ""))


def _foreign_address(node: StorageNode, host: Host) -> Verdict | None:
    wanted = node.spec.storage_network.ips if node.spec.storage_network is not None else ()
    if not wanted:
        return None
    there = addresses_of(host)
    known = {_normal(one) for one in there}
    missing = [one for one in wanted if _normal(one) not in known]
    if not missing:
        return None
    has = f"it has {', '.join(there) or 'none'}"
    message = f"host {host.metadata.name} does not have the address {', '.join(missing)}; {has}"
    return Verdict(False, ADDRESS_NOT_ON_HOST, message)


def _same_address(node: StorageNode, addresses: dict[tuple[str, str], str]) -> Verdict | None:
    name = node.metadata.name
    for address in node.spec.storage_network.ips if node.spec.storage_network is not None else ():
        other = addresses.setdefault((node.spec.type, _normal(address)), name)
        if other != name:
            return Verdict(False, SAME_ADDRESS, f"StorageNode {other} has the address {address} too")
    return None


def addresses_of(host: Host) -> tuple[str, ...]:
    """What was declared for the host and what its agent found."""
    found = host.status.inventory.addresses if host.status.inventory is not None else ()
    return tuple(dict.fromkeys((*host.spec.addresses, *found)))


@lru_cache(maxsize=1 << 16)
def _normal(address: str) -> str:
    """2001:db8::1 and 2001:DB8:0::1 are one address; a length behind it does not count."""
    plain = address.partition("/")[0]
    try:
        return str(ip_address(plain))
    except ValueError:
        return plain


def _selector_text(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def _names(hosts: Sequence[str]) -> str:
    rest = len(hosts) - _NAMED
    named = ", ".join(hosts[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"host {named}" if len(hosts) == 1 else f"hosts {named}"
