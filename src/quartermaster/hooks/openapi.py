"""What the hook service offers, as an OpenAPI 3.1 document made from the declarations of the hooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quartermaster import __version__
from quartermaster.backends.cstor.hook import Hook
from quartermaster.hooks.protocol import declared_kinds, group_of
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.resources.schema import schema_of

Document = dict[str, Any]

_OBJECTS: Document = {"type": "array", "items": {"type": "object"}}
_TEXTS: Document = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
_RESPONSE: Document = {
    "type": "object",
    "properties": {
        "status": {"type": ["object", "null"], "description": "The status of the watched object; null leaves it."},
        "labels": {**_TEXTS, "description": "Labels of the watched object; null removes one."},
        "annotations": {**_TEXTS, "description": "Annotations of the watched object; null removes one."},
        "attachments": {**_OBJECTS, "description": "All objects that should exist for the watched one."},
        "explicitUpdates": {**_OBJECTS, "description": "Parts of objects that somebody else made."},
        "explicitDeletes": {**_OBJECTS, "description": "Objects to delete, by name and uid."},
        "resyncAfterSeconds": {"type": "number", "description": "Call again after so long; 0: not by itself."},
        "skipReconcile": {"type": "boolean", "description": "Leave all attachments as they are."},
        "finalized": {"type": "boolean", "description": "The watched object may go."},
        "irreversible": {
            "type": "boolean",
            "description": "It takes something away for good: read anew what it was decided by, and call once more.",
        },
        "events": {
            "type": "array",
            "description": "What to tell people about the watched object.",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"enum": ["Normal", "Warning"]},
                    "reason": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
_REFUSAL: Document = {
    "type": "object",
    "properties": {"code": {"type": "integer"}, "reason": {"type": "string"}, "message": {"type": "string"}},
}
REFUSALS = {
    400: "The body is not JSON, or breaks off.",
    401: "The bearer token is missing or wrong.",
    404: "There is no such hook.",
    408: "The body did not arrive in time.",
    409: "The watched object is not what the API server would send: stale, or of another call.",
    413: "The body is too large.",
    415: "The body is compressed.",
    422: "A kind is wrong or missing, or an object does not fit its kind.",
    500: "The hook failed.",
    503: "Too much is in hand, or the service ends; see Retry-After.",
}


def describe(hooks: Iterable[Hook], *, secured: bool) -> Document:
    """The whole document."""
    hooks = tuple(hooks)
    kinds = {cls: None for hook in hooks for cls in (hook.watch, *declared_kinds(hook))}
    paths: Document = {}
    for hook in hooks:
        paths[f"/sync/{hook.name}"] = _path(hook, "What should be, from what is.", finalizing=False)
        if hook.finalize is not None:
            paths[f"/finalize/{hook.name}"] = _path(hook, "How to take down what is.", finalizing=True)
    components: Document = {
        "schemas": {
            "Response": _RESPONSE,
            "Refusal": _REFUSAL,
            **{_component(cls): {"title": kind_of(cls).kind, **schema_of(cls)} for cls in kinds},
        }
    }
    if secured:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hooks of Quartermaster",
            "version": __version__,
            "description": "Pure functions from an object and what belongs to it to what should be, in the form of "
            "metac's GenericController. Nothing is stored, and no call has an effect.",
        },
        "paths": paths,
        "components": components,
        **({"security": [{"token": []}]} if secured else {}),
    }


def _path(hook: Hook, summary: str, *, finalizing: bool) -> Document:
    refusals = {
        str(status): {"description": text, "content": _json({"$ref": "#/components/schemas/Refusal"})}
        for status, text in REFUSALS.items()
    }
    answer = {"description": "The answer.", "content": _json({"$ref": "#/components/schemas/Response"})}
    return {
        "post": {
            "operationId": f"{'finalize' if finalizing else 'sync'}-{hook.name}",
            "summary": summary,
            "requestBody": {"required": True, "content": _json(_request(hook))},
            "responses": {"200": answer, **refusals},
        }
    }


def _request(hook: Hook) -> Document:
    groups = {
        group_of(kind): {
            "type": "object",
            "description": "By namespace/name, or by name where it has no namespace.",
            "additionalProperties": {"$ref": f"#/components/schemas/{_component(kind)}"},
        }
        for kind in declared_kinds(hook)
    }
    return {
        "type": "object",
        "required": ["watch", "attachments"],
        "properties": {
            "controller": {"type": "object", "description": "Not looked at."},
            "watch": {"$ref": f"#/components/schemas/{_component(hook.watch)}"},
            "attachments": {"type": "object", "required": list(groups), "properties": groups},
            "finalizing": {"type": "boolean", "default": False},
        },
    }


def _json(schema: Document) -> Document:
    return {"application/json": {"schema": schema}}


def _component(cls: type[Object]) -> str:
    info = kind_of(cls)
    return ".".join((info.kind, *reversed(info.api_version.split("/"))))
