"""Mount: a host asks to use the volume of a claim, and is answered.

It belongs to the host, as its Host and its heartbeat do: in etcd it lies under the host's own prefix, so a host can ask
for itself and for nobody else. Whoever reads it goes by the name, which is bound to the key, for which host it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

from quartermaster.resources.declare import declare
from quartermaster.resources.kind import Column, kind
from quartermaster.resources.model import Object, Struct
from quartermaster.resources.orchestration import CATEGORIES, GROUP, VERSION
from quartermaster.resources.rules import Expression, rule
from quartermaster.support.errors import Problem

WAITING = "waiting"
GRANTED = "granted"
REFUSED = "refused"
ENDING = "ending"

_READABLE = 40  # characters of the claim's name in that of the Mount


class ClaimName(Struct):
    namespace: Annotated[str, declare("The namespace of the claim.", min_length=1)]
    name: Annotated[str, declare("The name of the claim.", min_length=1)]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class MountSpec(Struct):
    host: Annotated[str, declare("The host that asks.", immutable="always", min_length=1)]
    claim: Annotated[ClaimName, declare("The claim whose volume is to be used.", immutable="always")]
    path: Annotated[
        str,
        declare(
            "Where on the host it is used.",
            pattern="^/",
            says="must be an absolute path",
            min_length=1,
            max_length=4096,
        ),
    ]


class MountStatus(Struct):
    state: Annotated[
        str,
        declare(
            "The leader's answer: waiting, granted, refused (for good), or ending (the claim goes; what is mounted "
            "stays until it is unmounted).",
            enum=(WAITING, GRANTED, REFUSED, ENDING),
        ),
    ] = ""
    message: Annotated[str, declare("What is waited for, or why it is refused, as a sentence.")] = ""
    volume: Annotated[str, declare("The PersistentVolume on which the mount is written down.")] = ""


@kind(
    group=GROUP,
    version=VERSION,
    plural="mounts",
    columns=(
        Column("Host", ".spec.host", description="The host that asks"),
        Column("Claim", ".spec.claim.name", description="The claim whose volume it is"),
        Column("Path", ".spec.path", description="Where on the host it is used"),
        Column("State", ".status.state", description="The leader's answer"),
        Column("Message", ".status.message", description="What is waited for, or why it is refused"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Volume", ".status.volume", wide=True, description="The volume"),
    ),
    selectable_fields=("spec.host",),
    categories=CATEGORIES,
    own=True,
    status_subresource=True,
    generation=True,
    host="suffix",
)
class Mount(Object):
    """A volume that a host uses, or wishes to use, at a path; named <something>.<host>."""

    spec: Annotated[MountSpec, declare("What the host asks for.")]
    status: Annotated[MountStatus, declare("What the leader answers.")] = MountStatus()


def mount_name(host: str, claim: ClaimName, path: str) -> str:
    """The same for the same wish, so that asking twice is asking once."""
    digest = hashlib.sha256("\0".join((claim.namespace, claim.name, path)).encode()).hexdigest()[:12]
    readable = claim.name.replace(".", "-")[:_READABLE].strip("-")
    return f"{readable}-{digest}.{host}"


@rule(
    Mount,
    cel={
        "": [
            Expression(
                "self.metadata.name.endsWith('.' + self.spec.host)"
                " && !self.metadata.name.substring(0, self.metadata.name.size() - self.spec.host.size() - 1)"
                ".contains('.')",
                "the name must be <something without a dot>.<spec.host>",
            )
        ]
    },
)
def named_after_host(document: dict[str, Any]) -> Iterator[Problem]:
    name, host = document["metadata"].get("name") or "", document["spec"]["host"]
    if name.partition(".")[2] != host:
        yield Problem(
            "metadata.name", f'must end with ".{host}" after its first dot, is "{name}"', "<something>.<host>"
        )
