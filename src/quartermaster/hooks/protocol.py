"""Requests and answers of hooks as JSON: those of metac's GenericController, to the letter.

    {"controller": {…}, "watch": {…}, "finalizing": false,
     "attachments": {"BlockDevice.openebs.io/v1alpha1": {"openebs/blockdevice-1": {…}}, "Node.v1": {}}}

    {"status": {…}, "labels": {…}, "annotations": {…}, "attachments": […], "explicitUpdates": […],
     "explicitDeletes": […], "resyncAfterSeconds": 0, "skipReconcile": false, "finalized": false,
     "irreversible": false, "events": […]}

Every kind that the hook declares is there, if only as an empty object: a kind that is missing cannot be told from one
of which nothing exists, and a hook that takes the one for the other tears down what stands. `irreversible` and `events`
are ours; metac passes over fields that it does not know. What is wrong with a request is a RequestRefusedError, which
says the HTTP status that it deserves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from quartermaster.backends.cstor.hook import Attachments, Hook, HookEvent, SyncRequest, SyncResponse
from quartermaster.resources.codec import Document, decode_document, encode, from_document
from quartermaster.resources.kind import kind_of
from quartermaster.resources.model import Object
from quartermaster.support.errors import QuartermasterError

BAD_REQUEST = 400
CONFLICT = 409
UNPROCESSABLE = 422


class RequestRefusedError(QuartermasterError):
    """A request that a hook cannot be called with. `status` is that of HTTP, `code` one word that programs rely on."""

    reason = "RequestRefused"

    def __init__(self, status: int, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code


class _Envelope(msgspec.Struct):
    watch: msgspec.Raw
    attachments: dict[str, dict[str, msgspec.Raw] | None]
    finalizing: bool = False


class _Answer(msgspec.Struct, rename="camel"):
    """An answer as it is read; null is as good as nothing."""

    status: Document | None = None
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    attachments: list[Document] | None = None
    explicit_updates: list[Document] | None = None
    explicit_deletes: list[Document] | None = None
    resync_after_seconds: float = 0.0
    skip_reconcile: bool = False
    finalized: bool = False
    irreversible: bool = False
    events: list[HookEvent] | None = None


class KnownObjects:
    """Objects by the very bytes that they were read from: most attachments come again and again without a change.

    They are frozen, so calls may share them. Bounded by the bytes; what was not seen for longest goes first.
    """

    def __init__(self, limit: int = 16 * 2**20) -> None:
        self.limit = limit
        self._held = 0
        self._objects: OrderedDict[bytes, Object] = OrderedDict()

    def get(self, cls: type[Object], text: bytes) -> Object | None:
        found = self._objects.get(text)
        if found is None or type(found) is not cls:
            return None
        self._objects.move_to_end(text)
        return found

    def put(self, text: bytes, obj: Object) -> None:
        if text not in self._objects:
            self._held += len(text)
        self._objects[text] = obj
        while self._held > self.limit:
            self._held -= len(self._objects.popitem(last=False)[0])


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_ANSWER = msgspec.json.Decoder(_Answer)
_ENCODER = msgspec.json.Encoder()
# The form is looked at first and the content of objects later: both may not be JSON.
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@cache
def group_of(cls: type[Object]) -> str:
    """The key under which objects of a kind stand in `attachments`: BlockDevice.openebs.io/v1alpha1."""
    info = kind_of(cls)
    return f"{info.kind}.{info.api_version}"


def declared_kinds(hook: Hook) -> tuple[type[Object], ...]:
    """The kinds that a hook wants to be shown; several rules may be about one of them."""
    return tuple(dict.fromkeys(rule.kind for rule in hook.attachments))


def decode_request(hook: Hook, body: bytes, *, now: str, known: KnownObjects | None = None) -> SyncRequest:
    """What the hook is called with; kinds that it did not declare are passed over."""
    if known is not None and 4 * len(body) > known.limit:
        known = None  # it would push out everything else
    try:
        envelope = _ENVELOPE.decode(body)
    except msgspec.ValidationError as error:
        raise _unfit(hook, "Invalid", f"the request does not have the form of a hook request: {error}") from error
    except _NO_JSON as error:
        raise _no_json("the request", error) from error
    watch = _object(hook, hook.watch, envelope.watch, "", None)
    _check_watch(hook, watch, finalizing=envelope.finalizing)
    attachments = Attachments(_attachments(hook, envelope.attachments, known))
    return SyncRequest(watch=watch, attachments=attachments, now=now, finalizing=envelope.finalizing)


def encode_request(hook: Hook, request: SyncRequest) -> bytes:
    """As metac sends it; the objects of kinds that are indexed must be among the attachments."""
    groups = {
        group_of(kind): {str(obj.key): msgspec.Raw(encode(obj)) for obj in request.attachments.of(kind)}
        for kind in declared_kinds(hook)
    }
    return _ENCODER.encode(
        {
            "controller": _controller(hook),
            "watch": msgspec.Raw(encode(request.watch)),
            "attachments": groups,
            "finalizing": request.finalizing,
        }
    )


def encode_response(response: SyncResponse) -> bytes:
    return _ENCODER.encode(
        {
            "status": response.status,
            "labels": response.labels,
            "annotations": response.annotations,
            "attachments": response.attachments,
            "explicitUpdates": response.explicit_updates,
            "explicitDeletes": response.explicit_deletes,
            "resyncAfterSeconds": response.resync_after_s,
            "skipReconcile": response.skip_reconcile,
            "finalized": response.finalized,
            "irreversible": response.irreversible,
            "events": response.events,
        }
    )


def decode_response(body: bytes) -> SyncResponse:
    """Raises msgspec.DecodeError where it is none."""
    answer = _ANSWER.decode(body)
    return SyncResponse(
        status=answer.status,
        labels=answer.labels or {},
        annotations=answer.annotations or {},
        attachments=tuple(answer.attachments or ()),
        explicit_updates=tuple(answer.explicit_updates or ()),
        explicit_deletes=tuple(answer.explicit_deletes or ()),
        resync_after_s=answer.resync_after_seconds,
        skip_reconcile=answer.skip_reconcile,
        finalized=answer.finalized,
        irreversible=answer.irreversible,
        events=tuple(answer.events or ()),
    )


def _check_watch(hook: Hook, watch: Object, *, finalizing: bool) -> None:
    """A caller whose picture is old, or who has mixed up two calls, must not set anything in motion."""
    meta = watch.metadata
    if not meta.uid or not meta.name:
        missing = "uid" if meta.name else "name"
        raise _stale(hook, f"watch.metadata.{missing} is empty", "send the object as the API server has it")
    if finalizing and meta.deletion_timestamp is None:
        raise _stale(hook, f"{meta.name} is to be finalized and is not being deleted", "read it again")
    if not finalizing and meta.deletion_timestamp is not None:
        raise _stale(hook, f"{meta.name} is being deleted", f'call /finalize/{hook.name} with "finalizing": true')


def _attachments(
    hook: Hook, groups: Mapping[str, Mapping[str, msgspec.Raw] | None], known: KnownObjects | None
) -> Iterable[Object]:
    for kind in declared_kinds(hook):
        group = group_of(kind)
        found = groups.get(group)
        if found is None:
            raise _unfit(
                hook, "MissingKind", f'attachments has no "{group}"', hint="send every declared kind, if only as {}"
            )
        for name, raw in found.items():
            yield _object(hook, kind, raw, name, known)


def _object(hook: Hook, cls: type[Object], raw: msgspec.Raw, name: str, known: KnownObjects | None) -> Object:
    """One object; `name` is its key among the attachments, "" for the watched object."""
    text = bytes(raw)
    obj = None if known is None else known.get(cls, text)
    if obj is None:
        obj = _decoded(hook, cls, text, name)
        if known is not None:
            known.put(text, obj)
    # metac leaves the namespace out of the key where the watch is in the same one.
    meta = obj.metadata
    if name and name not in (meta.name, f"{meta.namespace}/{meta.name}"):
        raise _unfit(hook, "Invalid", f"{_place(cls, name)} is the object {obj.key}")
    return obj


def _decoded(hook: Hook, cls: type[Object], text: bytes, name: str) -> Object:
    info = kind_of(cls)
    try:
        document = decode_document(text)
    except _NO_JSON as error:
        raise _no_json(_place(cls, name), error) from error
    if not isinstance(document, dict):
        raise _unfit(hook, "WrongKind", f"{_place(cls, name)} is no object")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != info.kind or version != info.api_version:
        raise _unfit(
            hook, "WrongKind", f"{_place(cls, name)} is {kind} of {version}, not {info.kind} of {info.api_version}"
        )
    try:
        return from_document(cls, document)
    except msgspec.ValidationError as error:
        raise _unfit(hook, "Invalid", f"{_place(cls, name)} does not fit its kind: {error}") from error


def _place(cls: type[Object], name: str) -> str:
    """Where an object stands in a request, for the sentence about what is wrong with it."""
    return f'attachments["{group_of(cls)}"]["{name}"]' if name else "watch"


def _no_json(place: str, error: Exception) -> RequestRefusedError:
    return RequestRefusedError(BAD_REQUEST, "BadJSON", f"cannot read {place} as JSON: {error}")


def _unfit(hook: Hook, code: str, cause: str, *, hint: str = "") -> RequestRefusedError:
    return RequestRefusedError(UNPROCESSABLE, code, f"cannot call the hook {hook.name}: {cause}", hint=hint)


def _stale(hook: Hook, cause: str, hint: str) -> RequestRefusedError:
    return RequestRefusedError(CONFLICT, "Stale", f"cannot call the hook {hook.name}: {cause}", hint=hint)


def _controller(hook: Hook) -> dict[str, Any]:
    """The GenericController that this hook would be declared by; no hook of ours looks at it."""
    return {
        "apiVersion": "metac.openebs.io/v1alpha1",
        "kind": "GenericController",
        "metadata": {"name": hook.name},
        "spec": {"watch": _resource(hook.watch), "attachments": [_resource(kind) for kind in declared_kinds(hook)]},
    }


def _resource(cls: type[Object]) -> dict[str, str]:
    info = kind_of(cls)
    return {"apiVersion": info.api_version, "resource": info.plural}
