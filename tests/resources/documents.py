"""Random documents of any kind, made from its schema, and the seed's own example.

A document follows from a number, which hypothesis draws: to let it draw every field of a Pod takes minutes.
"""

import re
from random import Random
from typing import Any

from quartermaster.resources import kind_of
from quartermaster.resources.declare import PATTERN_SENTENCES
from quartermaster.resources.model import Object
from quartermaster.resources.schema import (
    INT_OR_STRING,
    LIST_KEYS,
    LIST_TYPE,
    OPEN,
    VALIDATIONS,
    Schema,
    full_schema_of,
)

SEED_STORAGE_NODE = """\
apiVersion: "coreos.com/v1"
kind: StorageNode
metadata:
  name: storage-node1
spec:
  type: glusterfs
  nodeSelector:
    'kubernetes.io/hostname': storage-node1
  storageNetwork:
    ips:
      - 10.10.10.100
  devices:
    - /dev/vdb
    - /dev/vdc
    - /dev/vdd
  glusterfs:
    cluster: cluster1
    zone: 1
"""

TEXTS = ("a", "Zwei", "3", "true", " x ", "é😀", "a.b/c:d", "{}", "null", "-")
QUANTITIES = ("1", "10Gi", "1500m", "0", 7)
TIMES = ("2024-05-01T12:00:00Z", "2024-05-01T12:00:00.123456Z")
ADDRESSES = ("10.0.0.1", "fd00::1", "192.168.7.9")
PATTERN_EXAMPLES = ("/dev/vdb", "/a/b", "WWN-0x5000", "abc", "a-b-9", "x")


def storage_node(**spec: Any) -> dict[str, Any]:
    """A valid StorageNode, with these fields of its spec."""
    return {
        "apiVersion": "coreos.com/v1",
        "kind": "StorageNode",
        "metadata": {"name": "a"},
        "spec": {"type": "glusterfs", **spec},
    }


def document_of(cls: type[Object], random: Random) -> dict[str, Any]:
    """A document that fits the schema of the kind; rules between its fields may still not hold."""
    info = kind_of(cls)
    body = value_of(full_schema_of(cls), random)
    return {**body, "apiVersion": info.api_version, "kind": info.kind}


def value_of(schema: Schema, random: Random) -> Any:
    if schema.get(INT_OR_STRING):
        return random.choice(QUANTITIES)
    match schema.get("type"):
        case "object":
            return _object_of(schema, random)
        case "array":
            return _list_of(schema, random)
        case "string":
            return _text_of(schema, random)
        case "integer":
            return random.randint(schema.get("minimum", -3), schema.get("maximum", 9))
        case "number":
            return random.uniform(schema.get("minimum", 0), schema.get("maximum", 9))
        case "boolean":
            return random.random() < 0.5
    return _anything(random)


def with_unknown_fields(document: Any, schema: Schema, random: Random) -> Any:
    """The document, into whose objects fields were put that no version of ours knows."""
    if isinstance(document, dict):
        properties, inner = schema.get("properties"), schema.get("additionalProperties")
        grown = {
            name: with_unknown_fields(child, (properties or {}).get(name) or inner or {}, random)
            for name, child in document.items()
        }
        if properties and random.random() < 0.5:
            grown["fieldOfTomorrow"] = _anything(random)
        return grown
    if isinstance(document, list) and not schema.get(OPEN):
        return [with_unknown_fields(item, schema.get("items", {}), random) for item in document]
    return document


def damaged(document: Any, random: Random) -> Any:
    """The document with one value, somewhere in it, replaced by something else, or gone."""
    if isinstance(document, dict | list) and document and random.random() < 0.8:
        key = random.choice(list(document)) if isinstance(document, dict) else random.randrange(len(document))
        changed = document.copy()
        if random.random() < 0.2:
            del changed[key]
        else:
            changed[key] = damaged(document[key], random)
        return changed
    return random.choice([5, -1, 0.5, True, "text", "", [], ["a"], {}, {"a": 1}, {"name": "x"}, None])


def _object_of(schema: Schema, random: Random) -> dict[str, Any]:
    properties = schema.get("properties")
    if properties is None:
        inner = schema.get("additionalProperties")
        if inner is None:
            return _anything(random)
        return {f"key{n}": value_of(inner, random) for n in range(random.randint(0, 2))}
    required = schema.get("required", ())
    # Sparse below, so that the deep parts of a Pod do not grow without end.
    return {
        name: value_of(child, random) for name, child in properties.items() if name in required or random.random() < 0.4
    }


def _list_of(schema: Schema, random: Random) -> list[Any]:
    found = [value_of(schema["items"], random) for _ in range(random.randint(0, 3))]
    if schema.get(LIST_TYPE) not in ("map", "set"):
        return found
    keys = schema.get(LIST_KEYS)
    by_name = {repr([item.get(key) for key in keys] if keys else item): item for item in found}
    return list(by_name.values())


def _text_of(schema: Schema, random: Random) -> str:
    if "enum" in schema:
        return str(random.choice(schema["enum"]))
    if schema.get("format") == "date-time":
        return random.choice(TIMES)
    if any(rule["rule"] == "isIP(self)" for rule in schema.get(VALIDATIONS, ())):
        return random.choice(ADDRESSES)
    if "pattern" in schema:
        return _matching(schema["pattern"], random)
    return random.choice(TEXTS)


def _matching(pattern: str, random: Random) -> str:
    assert pattern in PATTERN_SENTENCES
    return random.choice([text for text in PATTERN_EXAMPLES if re.search(pattern, text)])


def _anything(random: Random) -> dict[str, Any]:
    values = [5, "text", True, [1, "a"], {"deep": {"deeper": [{}]}}, {}]
    return {f"free{n}": random.choice(values) for n in range(random.randint(0, 2))}
