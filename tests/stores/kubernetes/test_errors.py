"""What an API server answers, as our errors."""

from typing import Any

import msgspec
import pytest

from quartermaster.stores.kubernetes.errors import error_of, read_status
from quartermaster.stores.kubernetes.request import Request
from quartermaster.support import errors
from quartermaster.support.errors import FieldConflict, Problem


def refused(code: int, *, method: str = "PUT", repeated: bool = False, **status: Any) -> errors.QuartermasterError:
    request = Request(method, "/", "update", "widget", "default", "a", repeated=repeated)
    body = msgspec.json.encode({"kind": "Status", "code": code, **status})
    return error_of(request, code, read_status(code, body))


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.InvalidError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (405, "MethodNotAllowed", errors.RefusedError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (409, "Conflict", errors.ConflictError),
        (410, "Expired", errors.ExpiredError),
        (413, "RequestEntityTooLarge", errors.RefusedError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.UnavailableError),
        (500, "InternalError", errors.UnavailableError),
        (503, "ServiceUnavailable", errors.UnavailableError),
        (504, "Timeout", errors.UnavailableError),
    ],
)
def test_every_code_has_its_error(code: int, reason: str, expected: type[errors.QuartermasterError]) -> None:
    error = refused(code, reason=reason, message="because")
    assert type(error) is expected
    assert str(error).startswith('cannot update widget "default/a"')


def test_what_is_not_there_is_told_from_what_the_server_does_not_know() -> None:
    assert str(refused(404, details={"name": "a"})) == 'cannot find widget "default/a"'
    assert "CustomResourceDefinition is not installed" in str(refused(404))
    elsewhere = refused(404, message='namespaces "nowhere" not found', details={"name": "nowhere"})
    assert str(elsewhere) == 'cannot update widget "default/a": namespaces "nowhere" not found'


def test_a_conflict_of_an_apply_names_managers_and_fields() -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl" using example.com/v1',
            "field": ".spec.b",
        },
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "agent" with subresource "status" using example.com/v1 at 2026-01-01T00:00:00Z',
            "field": '.status.conditions[type="Ready"].status',
        },
    ]
    error = refused(409, reason="Conflict", details={"causes": causes})
    assert isinstance(error, errors.ApplyConflictError)
    assert error.conflicts == (
        FieldConflict("agent", '.status.conditions[type="Ready"].status'),
        FieldConflict("kubectl", ".spec.b"),
    )


def test_all_mistakes_are_told_with_their_path() -> None:
    causes = [
        {"reason": "FieldValueInvalid", "message": "Invalid value: -1: should be at least 1", "field": "spec.zone"},
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.type"},
    ]
    error = refused(422, reason="Invalid", details={"causes": causes})
    assert isinstance(error, errors.InvalidError)
    assert [problem.path for problem in error.problems] == ["spec.zone", "spec.type"]


@pytest.mark.parametrize(
    ("code", "message", "problem"),
    [
        (
            500,
            "failed to create typed patch object (/a; x.com/v1, Kind=Widget): .spec.foo: field not declared in schema",
            Problem("spec.foo", "field not declared in schema"),
        ),
        (
            400,
            'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.foo"',
            Problem("spec.foo", "unknown field"),
        ),
    ],
)
def test_a_mistake_told_in_words_only_is_found_in_them(code: int, message: str, problem: Problem) -> None:
    error = refused(code, message=message)
    assert isinstance(error, errors.InvalidError)
    assert error.problems == (problem,)


def test_a_write_that_failed_in_the_server_may_have_happened() -> None:
    assert "the write may have happened" in str(refused(500, message="etcdserver: request timed out"))
    assert "may have happened" not in str(refused(429, message="too many requests"))
    assert "may have happened" not in str(refused(500, method="GET", message="etcdserver: request timed out"))


def test_a_conflict_after_a_broken_connection_may_be_with_ourselves() -> None:
    assert "our own attempt" in str(refused(409, repeated=True, reason="Conflict", message="x"))


def test_an_answer_that_is_no_status_is_shown_as_it_is() -> None:
    status = read_status(502, b"<html>Bad Gateway</html>")
    assert (status.code, status.message) == (502, "<html>Bad Gateway</html>")
