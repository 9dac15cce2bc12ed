"""What a name, a label and an annotation key may look like, as Kubernetes has it, and the sentence for what may not.

Each `check_…` returns "" when the text is fine, else what it must look like; callers add where it stands.
"""

from __future__ import annotations

import re

# Where an object is that is in a namespace and does not say in which.
DEFAULT_NAMESPACE = "default"

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_ANNOTATIONS_BYTES = 256 * 1024


def check_subdomain(text: str) -> str:
    """The name of most objects: at most 253 characters of lower case, digits, `-` and `.`."""
    if len(text) > SUBDOMAIN_LENGTH:
        return f"must be at most {SUBDOMAIN_LENGTH} characters, has {len(text)}"
    if not _DNS_SUBDOMAIN.fullmatch(text):
        return 'must be lower-case letters, digits, "-" and ".", and begin and end with a letter or digit'
    return ""


def check_dns_label(text: str) -> str:
    """The name of a namespace, a container, a volume: at most 63 characters, no dots."""
    if len(text) > LABEL_LENGTH:
        return f"must be at most {LABEL_LENGTH} characters, has {len(text)}"
    if not _DNS_LABEL.fullmatch(text):
        return 'must be lower-case letters, digits and "-", and begin and end with a letter or digit'
    return ""


def check_qualified_name(text: str) -> str:
    """The key of a label or annotation, a finalizer: a name, with an optional prefix before a slash."""
    prefix, slash, name = text.rpartition("/")
    if slash:
        if not prefix:
            return "must have a domain before the slash"
        if "/" in prefix:
            return "must have at most one slash"
        if wrong := check_subdomain(prefix):
            return f"must have a domain before the slash, which {wrong}"
    if len(name) > LABEL_LENGTH:
        return f"must have a name of at most {LABEL_LENGTH} characters, has {len(name)}"
    if not _QUALIFIED.fullmatch(name):
        return 'must have a name of letters, digits, "-", "_" and ".", beginning and ending with a letter or digit'
    return ""


def check_label_value(text: str) -> str:
    if len(text) > LABEL_LENGTH:
        return f"must be at most {LABEL_LENGTH} characters, has {len(text)}"
    if text and not _QUALIFIED.fullmatch(text):
        return 'must be letters, digits, "-", "_" and ".", and begin and end with a letter or digit'
    return ""


def check_annotations_size(annotations: dict[str, str]) -> str:
    size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
    return f"must be at most 256 KiB together, are {size} bytes" if size > _ANNOTATIONS_BYTES else ""


def as_subdomain(text: str) -> str:
    """The nearest legal name, for a hint; "" when nothing is left."""
    lowered = re.sub(r"[^a-z0-9.-]+", "-", text.lower())
    return ".".join(filter(None, (part.strip("-") for part in lowered.split("."))))[:SUBDOMAIN_LENGTH].strip("-.")
