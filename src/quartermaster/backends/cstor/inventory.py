"""The nodes and block devices of a cluster, indexed so that a plan need not look at all of them again.

With 10,000 nodes and 100,000 devices a plan that counts afresh takes seconds; here a change of one node or device
touches what is known of that node only. It is fed one object at a time (`put`, `remove`), by whoever has the objects:
the caches of a controller, or a hook from its attachments. What is asked for once (which nodes a selector allows, how
many devices a selector finds on a node) is remembered and kept up to date from then on.

Devices are found by the host on which they are: the label that OpenEBS compares, which is the node's own label of the
same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from quartermaster.backends.cstor.devices import Criteria, freedom_of, host_of
from quartermaster.backends.cstor.names import CONFIG_UID_LABEL
from quartermaster.planning.nodes import NodeFacts, facts_of, fits
from quartermaster.resources.agility import NodeSelectorTerm
from quartermaster.resources.kubernetes.core import Node
from quartermaster.resources.marks import HOSTNAME_LABEL
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import BlockDevice

_Place = tuple[str, str]  # namespace and name
# What is remembered per selector costs memory for each node; beyond so many selectors the oldest is forgotten.
_REMEMBERED = 4096


class Inventory:
    """Of one moment; whoever changes it while a hook reads it waits for the hook."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._by_label: dict[tuple[str, str], dict[str, None]] = {}
        self._devices: dict[_Place, BlockDevice] = {}
        self._by_host: dict[str, dict[_Place, BlockDevice]] = {}
        self._by_hostname: dict[str, dict[str, None]] = {}
        self._by_config: dict[str, dict[_Place, BlockDevice]] = {}
        self._selections: dict[bytes, tuple[tuple[NodeSelectorTerm, ...], dict[str, None]]] = {}
        self._counts: dict[Criteria, dict[str, int]] = {}
        for obj in objects:
            self.put(obj)

    @property
    def nodes(self) -> Mapping[str, NodeFacts]:
        return self._nodes

    def node(self, name: str, uid: str = "") -> NodeFacts | None:
        """The node of that name, and of that uid where one is given."""
        found = self._nodes.get(name)
        return found if found is not None and (not uid or found.uid == uid) else None

    def on_hostname(self, hostname: str) -> tuple[NodeFacts, ...]:
        """The nodes with that hostname label; OpenEBS wants exactly one."""
        return tuple(self._nodes[name] for name in sorted(self._by_hostname.get(hostname, ())))

    def matching(self, labels: Mapping[str, str]) -> tuple[NodeFacts, ...]:
        """The nodes that have all of these labels."""
        if len(labels) == 1 and HOSTNAME_LABEL in labels:
            return self.on_hostname(labels[HOSTNAME_LABEL])
        names = self._narrowed(NodeSelectorTerm(match_labels=dict(labels)))
        wanted = labels.items()
        return tuple(self._nodes[n] for n in sorted(names) if wanted <= self._nodes[n].labels.items())

    def device(self, namespace: str, name: str) -> BlockDevice | None:
        return self._devices.get((namespace, name))

    def devices_on(self, host: str) -> tuple[BlockDevice, ...]:
        found = self._by_host.get(host, {})
        return tuple(found[key] for key in sorted(found))

    def devices_of(self, config_uid: str) -> tuple[BlockDevice, ...]:
        """The devices that carry the label of that config, wherever they are."""
        found = self._by_config.get(config_uid, {})
        return tuple(found[key] for key in sorted(found))

    def allowed(self, terms: tuple[NodeSelectorTerm, ...]) -> Mapping[str, None]:
        """The names of the nodes that the terms allow, in no particular order."""
        key = msgspec.json.encode(terms)
        known = self._selections.get(key)
        if known is None:
            known = (terms, dict.fromkeys(self._select(terms)))
            _remember(self._selections, key, known)
        return known[1]

    def free_on(self, host: str, criteria: Criteria) -> int:
        """How many devices of the host are free and as wanted."""
        return self.counter(criteria)(host)

    def counter(self, criteria: Criteria) -> Callable[[str], int]:
        """`free_on` for many hosts. It holds until the inventory changes."""
        known = self._counts.get(criteria)
        if known is None:
            known = {}
            _remember(self._counts, criteria, known)
        counts, test = known, freedom_of(criteria)

        def count(host: str) -> int:
            found = counts.get(host)
            if found is None:
                found = counts[host] = sum(map(test, self._by_host.get(host, {}).values()))
            return found

        return count

    def put(self, obj: Object) -> bool:
        """Take note of a Node or BlockDevice; other kinds are ignored. Whether anything that matters changed."""
        if isinstance(obj, Node):
            return self._put_node(facts_of(obj))
        if isinstance(obj, BlockDevice):
            return self._put_device(obj)
        return False

    def remove(self, obj: Object) -> bool:
        if isinstance(obj, Node):
            return self._drop_node(obj.metadata.name)
        if isinstance(obj, BlockDevice):
            return self._drop_device(_place(obj))
        return False

    def _put_node(self, node: NodeFacts) -> bool:
        old = self._nodes.get(node.name)
        if old == node:
            return False
        if old is not None:
            self._unindex(old)
        self._nodes[node.name] = node
        for pair in node.labels.items():
            self._by_label.setdefault(pair, {})[node.name] = None
        self._by_hostname.setdefault(node.hostname, {})[node.name] = None
        for terms, names in self._selections.values():
            if fits(terms, node.labels, node.annotations):
                names[node.name] = None
            else:
                names.pop(node.name, None)
        return True

    def _drop_node(self, name: str) -> bool:
        old = self._nodes.pop(name, None)
        if old is None:
            return False
        self._unindex(old)
        for _, names in self._selections.values():
            names.pop(name, None)
        return True

    def _unindex(self, node: NodeFacts) -> None:
        for pair in node.labels.items():
            _discard(self._by_label, pair, node.name)
        _discard(self._by_hostname, node.hostname, node.name)

    def _put_device(self, device: BlockDevice) -> bool:
        key = _place(device)
        old = self._devices.get(key)
        self._devices[key] = device
        host = host_of(device)
        if old is not None:
            self._unindex_device(old)
        self._by_host.setdefault(host, {})[key] = device
        if (owner := device.metadata.labels.get(CONFIG_UID_LABEL)) is not None:
            self._by_config.setdefault(owner, {})[key] = device
        self._forget(host)
        return old is None or old != device

    def _drop_device(self, key: _Place) -> bool:
        old = self._devices.pop(key, None)
        if old is None:
            return False
        self._unindex_device(old)
        return True

    def _unindex_device(self, device: BlockDevice) -> None:
        host = host_of(device)
        _discard(self._by_host, host, _place(device))
        _discard(self._by_config, device.metadata.labels.get(CONFIG_UID_LABEL, ""), _place(device))
        self._forget(host)

    def _forget(self, host: str) -> None:
        for counts in self._counts.values():
            counts.pop(host, None)

    def _select(self, terms: tuple[NodeSelectorTerm, ...]) -> Iterator[str]:
        if not terms:
            yield from self._nodes
            return
        seen: dict[str, None] = {}
        for term in terms:
            for name in self._narrowed(term):
                node = self._nodes[name]
                if name not in seen and fits((term,), node.labels, node.annotations):
                    seen[name] = None
        yield from seen

    def _narrowed(self, term: NodeSelectorTerm) -> Iterable[str]:
        """The fewest nodes among which all that fit must be."""
        if not term.match_labels:
            return tuple(self._nodes)
        return min((self._by_label.get(pair, {}) for pair in term.match_labels.items()), key=len)


def _place(obj: Object) -> _Place:
    return obj.metadata.namespace, obj.metadata.name


def _discard(index: dict[Any, dict[Any, Any]], key: Any, name: Any) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(name, None)
        if not found:
            del index[key]


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= _REMEMBERED:
        del known[next(iter(known))]
    known[key] = value
