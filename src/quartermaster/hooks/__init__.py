"""The HTTP face of hooks and the controller that calls them.

A hook is a pure function from an object and what belongs to it to what should be (`backends/cstor/hook.py`). Here it is
served to any controller that speaks metac's protocol (`HookService`), and called by a controller of our own
(`hook_controllers`), in the same process or over HTTP. docs/design/hooks.md has the reasons.
"""

from quartermaster.hooks.access import Certificate, TokenFile, trust
from quartermaster.hooks.callers import Caller, InProcess, OverHTTP
from quartermaster.hooks.controller import HookController, hook_controllers
from quartermaster.hooks.protocol import (
    RequestRefusedError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    group_of,
)
from quartermaster.hooks.watched import finalizer_of

__all__ = [
    "Caller",
    "Certificate",
    "HookController",
    "InProcess",
    "OverHTTP",
    "RequestRefusedError",
    "TokenFile",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "finalizer_of",
    "group_of",
    "hook_controllers",
    "trust",
]
