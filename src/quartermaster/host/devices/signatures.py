"""What is on a device, asked of the device itself and not of a cache, twice where it matters.

`probe` asks blkid, for the inventory. `everything_found` asks wipefs too, which also lists what is hidden behind something
else (an old RAID member at the end of a disk with a file system): a device is blank only when neither finds anything.
"""

from __future__ import annotations

from typing import Any

from quartermaster.host.commands import Command, Commands
from quartermaster.host.devices.model import Signature
from quartermaster.support.errors import HostError

PROBE_TIMEOUT_S = 10.0
_FOUND, _NOTHING, _SEVERAL = 0, 2, 8


async def probe(commands: Commands, path: str) -> tuple[Signature, ...]:
    """What blkid finds. HostError when it cannot tell: that is not the same as nothing."""
    verb = f"probe {path}"
    result = await commands.run(
        Command(
            ("blkid", "--probe", "--output", "export", path),
            verb=verb,
            timeout_s=PROBE_TIMEOUT_S,
            accept=(_FOUND, _NOTHING, _SEVERAL),
            changes=False,
        )
    )
    if result.exit_code == _SEVERAL:
        return (Signature("several file systems at once", usage="other"),)
    complaint = result.stderr.decode(errors="replace").strip()
    if result.exit_code == _NOTHING and complaint:
        raise HostError(f"cannot {verb}: {complaint}")
    return parse_export(result.text)


def parse_export(text: str) -> tuple[Signature, ...]:
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    found = []
    if values.get("TYPE"):
        found.append(
            Signature(values["TYPE"], values.get("USAGE", ""), values.get("UUID", ""), _plain(values.get("LABEL", "")))
        )
    if values.get("PTTYPE"):
        found.append(Signature(values["PTTYPE"], "partition table", values.get("PTUUID", "")))
    return tuple(found)


async def everything_found(commands: Commands, path: str) -> tuple[Signature, ...]:
    """What blkid or wipefs find."""
    found = list(await probe(commands, path))
    verb = f"list the signatures of {path}"
    result = await commands.run(
        Command(("wipefs", "--no-act", "--json", path), verb=verb, timeout_s=PROBE_TIMEOUT_S, changes=False)
    )
    if result.stdout.strip():
        known = {(signature.type, signature.uuid) for signature in found}
        for entry in result.json(verb=verb)["signatures"]:
            signature = _of_wipefs(entry)
            if (signature.type, signature.uuid) not in known:
                known.add((signature.type, signature.uuid))
                found.append(signature)
    return tuple(found)


def _of_wipefs(entry: dict[str, Any]) -> Signature:
    return Signature(entry["type"], uuid=entry.get("uuid") or "", label=entry.get("label") or "")


def _plain(text: str) -> str:
    """blkid puts a backslash before what a shell would stumble over."""
    return text.replace("\\", "")
