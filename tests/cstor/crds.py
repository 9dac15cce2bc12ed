"""The CustomResourceDefinitions of OpenEBS, as far as they matter here: OpenEBS itself is not installed in tests.

Made from our own structs, which are open to fields that they do not name, as the real ones are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from quartermaster.resources.crd import crd_of
from quartermaster.resources.model import Object
from quartermaster.resources.openebs import (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)

OPENEBS_KINDS: tuple[type[Object], ...] = (
    BlockDevice,
    BlockDeviceClaim,
    CStorPoolCluster,
    CStorPoolInstance,
    CStorVolumeReplica,
)
_OURS = Path(__file__).resolve().parents[2] / "deploy" / "crds"


def manifests(directory: Path) -> list[Path]:
    """Files to apply to an API server before the first config: our kinds and those of OpenEBS."""
    made = directory / "openebs-crds.json"
    definitions = [_structural(crd_of(kind)) for kind in OPENEBS_KINDS]
    made.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": definitions}))
    return [made, *sorted(_OURS.glob("*.dao.mayadata.io.yaml"))]


def _structural(value: Any) -> Any:
    """A quantity in the form that an API server takes in a definition."""
    if isinstance(value, list):
        return [_structural(child) for child in value]
    if not isinstance(value, dict):
        return value
    if any("type" in choice for choice in value.get("anyOf", ())):
        return {"x-kubernetes-int-or-string": True}
    return {name: _structural(child) for name, child in value.items()}
