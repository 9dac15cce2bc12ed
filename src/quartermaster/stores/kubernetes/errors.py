"""What an API server says when it will not: its `Status`, as one of our errors.

The API server answers most mistakes with a reason and machine-readable causes. Two things it says only in words: an
apply whose fields do not fit the schema (it calls that its own error, 500), and what a strict decoder found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from quartermaster.stores.kubernetes.request import Request
from quartermaster.support.errors import (
    AlreadyExistsError,
    ApplyConflictError,
    ConflictError,
    ExpiredError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Problem,
    QuartermasterError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
)

_SHOWN_CHARACTERS = 300
_CONFLICT_MANAGER = re.compile(r'conflicts? with "((?:[^"\\]|\\.)*)"')
# failed to create typed patch object (default/a; example.com/v1, Kind=Widget): .spec.zome: field not declared in schema
_TYPED_PATCH = re.compile(r"failed to create typed patch object \([^)]*\): (.*)", re.DOTALL)
_TYPED_PROBLEM = re.compile(r"^\s*\.(\S+): (.+)$", re.MULTILINE)
_STRICT_PROBLEM = re.compile(r'(unknown|duplicate) field "([^"]*)"')


class Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[Cause] = []
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """The API's own answer about an answer."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


_DECODER = msgspec.json.Decoder(Status)


def read_status(code: int, body: bytes) -> Status:
    """The Status in an answer; one made up from the text when something else than an API server answered."""
    try:
        status = _DECODER.decode(body)
    except msgspec.MsgspecError:
        status = Status()
    if status.kind == "Status":
        return status
    text = body[:_SHOWN_CHARACTERS].decode(errors="replace").strip()
    return Status(kind="", code=code, message=text)


def was_turned_away(code: int, retry_after_s: float) -> bool:
    """Whether the server says that it did nothing with the request and is to be asked again."""
    return code == 429 or (code == 503 and retry_after_s > 0)


def error_of(request: Request, code: int, status: Status, *, retry_after_s: float = 0.0) -> QuartermasterError:
    """The error that a refused request ends with."""
    cannot = f"cannot {request.describe()}"
    causes = status.details.causes if status.details else []
    message = status.message or f"the server answers with code {code}"
    if code in (400, 422) or (code == 500 and _TYPED_PATCH.search(message)):
        return InvalidError(cannot, tuple(_problems(message, causes)))
    if code == 409:
        return _conflict(request, cannot, status, causes)
    if code == 404:
        return _not_found(request, cannot, status, message)
    if code == 429 or code >= 500:
        return _unavailable(request, f"{cannot}: the server answers with code {code}: {message}", code, retry_after_s)
    return _refused(cannot, code, message)


def _refused(cannot: str, code: int, message: str) -> QuartermasterError:
    if code == 410:
        return ExpiredError(f"{cannot}: {message.partition('. ')[0]}", hint="list again")
    if code == 401:
        return UnauthorizedError(f"{cannot}: the server does not accept who we say we are")
    if code == 403:
        return ForbiddenError(f"{cannot}: {message}", hint="an administrator has to allow it (RBAC)")
    return RefusedError(f"{cannot}: the server answers with code {code}: {message}")


def _unavailable(request: Request, message: str, code: int, retry_after_s: float) -> UnavailableError:
    if request.writes and not was_turned_away(code, retry_after_s):
        return UnavailableError(f"{message}; the write may have happened", hint="read before repeating it")
    return UnavailableError(message, hint="try again later", retry_after_s=retry_after_s)


def _conflict(request: Request, cannot: str, status: Status, causes: Iterable[Cause]) -> QuartermasterError:
    if status.reason == "AlreadyExists":
        return AlreadyExistsError(f"{cannot}: it is there already")
    owned = [FieldConflict(_manager(cause), cause.field) for cause in causes if _is_owned(cause)]
    if owned:
        fields = ", ".join(f"{conflict.path} ({conflict.manager})" for conflict in sorted(owned))
        return ApplyConflictError(
            f"{cannot}: other managers own fields of it: {fields}",
            owned,
            hint="leave these fields out, or take them over by force",
        )
    if request.repeated:
        # The connection broke and the request was sent again: the other writer may have been our own first attempt.
        return ConflictError(f"{cannot}: it was changed in between, perhaps by our own attempt", hint="read it again")
    if "has been modified" in status.message:
        return ConflictError(
            f"{cannot}: somebody else changed it in between", hint="read it again and repeat the change"
        )
    cause = status.message.partition('": ')[2] or status.message
    return ConflictError(f"{cannot}: {cause}", hint="read it again")


def _not_found(request: Request, cannot: str, status: Status, message: str) -> NotFoundError:
    details = status.details
    if details is None or not details.name:
        return NotFoundError(
            f"{cannot}: the server does not know {request.noun}",
            hint="its CustomResourceDefinition is not installed; `qm crd install` installs our own ones",
        )
    if details.name == request.name:
        return NotFoundError(f"cannot find {request.describe().partition(' ')[2]}")
    return NotFoundError(f"{cannot}: {message}")


def _problems(message: str, causes: Iterable[Cause]) -> Iterable[Problem]:
    found = [Problem(cause.field.removeprefix("."), cause.message) for cause in causes if cause.field]
    if found:
        return found
    if typed := _TYPED_PATCH.search(message):
        found = [Problem(path, text) for path, text in _TYPED_PROBLEM.findall(typed.group(1))]
    elif strict := _STRICT_PROBLEM.findall(message):
        found = [Problem(path, f"{what} field") for what, path in strict]
    return found or [Problem("request", message)]


def _is_owned(cause: Cause) -> bool:
    return cause.reason == "FieldManagerConflict"


def _manager(cause: Cause) -> str:
    match = _CONFLICT_MANAGER.search(cause.message)
    return match.group(1) if match else ""
