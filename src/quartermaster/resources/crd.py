"""The CustomResourceDefinition of each kind that is ours."""

from __future__ import annotations

from typing import Any

from quartermaster.resources.kind import Column, all_kinds, kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.schema import schema_of

Document = dict[str, Any]


def own_kinds() -> tuple[type[Object], ...]:
    """The kinds that have a CRD."""
    return tuple(cls for cls in all_kinds() if kind_of(cls).own)


def crd_of(cls: type[Object]) -> Document:
    """The definition of a kind, as an API server takes it."""
    info = kind_of(cls)
    names: Document = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.singular,
    }
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    version: Document = {
        "name": info.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema_of(cls)},
    }
    if info.status_subresource:
        version["subresources"] = {"status": {}}
    if info.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in info.columns]
    if info.selectable_fields:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in info.selectable_fields]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": info.resource,
            "labels": {"app.kubernetes.io/part-of": "quartermaster"},
        },
        "spec": {
            "group": info.group,
            "names": names,
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _column(column: Column) -> Document:
    shown: Document = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.wide:
        shown["priority"] = 1
    return shown
