"""What may be shown, and what may not."""

from __future__ import annotations

import pytest

from quartermaster.support.redaction import HIDDEN, redact


@pytest.mark.parametrize("key", ["password", "adminPassword", "API_TOKEN", "clientSecret", "Authorization", "keyring"])
def test_a_secrets_key_hides_whatever_it_holds(key: str) -> None:
    assert redact({key: "s3cret", "name": "a"}) == {key: HIDDEN, "name": "a"}
    assert redact({key: {"nested": ["s3cret"]}}) == {key: HIDDEN}


@pytest.mark.parametrize("value", ["", None, False, True])
def test_that_a_secret_is_missing_or_switched_on_is_no_secret(value: object) -> None:
    assert redact({"password": value}) == {"password": value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("etcd://root:s3cret@host:2379/prefix", f"etcd://root:{HIDDEN}@host:2379/prefix"),
        ("sent Bearer abc.DEF-123_x", f"sent Bearer {HIDDEN}"),
        (
            "key: -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- end",
            f"key: {HIDDEN} end",
        ),
    ],
)
def test_secrets_are_known_by_their_shape_in_any_text(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact({"list": [{"message": text}]}) == {"list": [{"message": shown}]}


@pytest.mark.parametrize("value", ["http://host:8080/path", "a@b", 3, 2.5, None, b"bytes"])
def test_everything_else_stays_as_it_is(value: object) -> None:
    assert redact(value) == value
