"""Secrets stay out of logs, events and error texts: by the name of the key, and by the shape of the text."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "[redacted]"

_SECRET_KEY = re.compile(r"password|passwd|secret|token|credential|private|authorization|keyring|chap", re.IGNORECASE)
_SECRET_TEXT = (
    (re.compile(r"(://[^/\s:@]*:)[^/\s@]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]{6,}"), rf"\1{HIDDEN}"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), HIDDEN),
)


def redact(value: Any, *, key: str = "") -> Any:
    """`value` as it may be shown. Mappings and lists are walked; a secret's key hides whatever it holds."""
    if key and value and _SECRET_KEY.search(key) and not isinstance(value, bool):
        return HIDDEN
    if isinstance(value, str):
        for pattern, replacement in _SECRET_TEXT:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {k: redact(v, key=str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(v) for v in value]
    return value
