"""One request to the API server: what to send, what to call it in an error, and whether it may be sent twice.

How an attempt fails, whichever way it is sent, is one of the two errors here: they decide what is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"


class NotSentError(Exception):
    """The request did not reach a server."""


class InterruptedRequestError(Exception):
    """The request was sent, and no whole answer came."""


@dataclass(slots=True)
class Request:
    """`what` is the verb of an error text; `noun` its object: a kind, or something like a path.

    `repeatable` says that processing the request twice does no more than processing it once, so that it may be sent
    again when a connection broke and nobody knows whether it was processed:

    - a read and a dry run change nothing;
    - an update carries a resourceVersion, a delete a uid: the second is refused when the first was done;
    - an apply states what the fields of its manager are: the second finds them so.

    A create is not: the second one says AlreadyExists about our own object, or makes another one with generateName.
    """

    method: str
    path: str  # encoded, with its query
    what: str
    noun: str
    namespace: str = ""
    name: str = ""
    body: bytes | None = None
    content_type: str = JSON
    repeatable: bool = False
    check: Callable[[], None] | None = None  # asked right before each attempt is sent; it may refuse by raising
    repeated: bool = False  # set on the way: an earlier attempt may have been processed

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def describe(self) -> str:
        """As a person names it: update storagenode "a/b"."""
        if not self.name:
            return f"{self.what} {self.noun}"
        return (
            f'{self.what} {self.noun} "{self.namespace}/{self.name}"'
            if self.namespace
            else f'{self.what} {self.noun} "{self.name}"'
        )
