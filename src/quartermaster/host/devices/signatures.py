"""What is on a device, asked of the device itself and not of a cache, twice where it matters.

`probe` asks blkid, for the inventory. `everything_found` asks wipefs too, which also lists what is hidden behind
something else (an old RAID member at the end of a disk with a file system). To both a disk that cannot be read looks
blank, so it is read first.

What neither recognises may be somebody's data all the same: a raw database, a disk that is encrypted without a header.
So a device is blank only when neither finds anything and the first and the last MiB of it are zero.
"""

from __future__ import annotations

from typing import Any

from quartermaster.host.commands import Command, Commands
from quartermaster.host.devices.model import PARTITION_TABLE, UNRECOGNISED, Signature

PROBE_TIMEOUT_S = 10.0
_TABLES = ("PMBR", "atari", "bsd", "dos", "gpt", "mac", "sgi", "solaris", "sun", "ultrix", "unixware")
_FOUND, _NOTHING, _SEVERAL = 0, 2, 8
BLANK_BYTES = 1 << 20
_DIFFERENT = 1


async def probe(commands: Commands, path: str) -> tuple[Signature, ...]:
    """What blkid finds. HostError when it cannot tell: that is not the same as nothing."""
    verb = f"probe {path}"
    await _read_first_block(commands, path)
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
    return parse_export(result.text)


async def _read_first_block(commands: Commands, path: str) -> None:
    # Past the page cache: a disk that died after somebody read it must be noticed.
    argv = ("dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none")
    await commands.run(Command(argv, verb=f"read {path}", timeout_s=PROBE_TIMEOUT_S, changes=False))


async def unrecognised(commands: Commands, path: str, size: int) -> tuple[Signature, ...]:
    """UNRECOGNISED where the device, on which nobody finds anything, is not blank."""
    return () if await is_blank(commands, path, size) else (UNRECOGNISED,)


async def is_blank(commands: Commands, path: str, size: int, *, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Whether there is nothing but zeros at both ends of a device of so many bytes."""
    for place in ends_of(size):
        if not await _is_zero(commands, path, min(size, BLANK_BYTES), place, timeout_s):
            return False
    return True


def ends_of(size: int) -> tuple[int, ...]:
    """Where that begins which has to be zero."""
    return tuple(dict.fromkeys((0, max(0, size - BLANK_BYTES))))


async def _is_zero(commands: Commands, path: str, length: int, place: int, timeout_s: float) -> bool:
    argv = ("cmp", "--quiet", f"--bytes={length}", f"--ignore-initial=0:{place}", "/dev/zero", path)
    verb = f"see whether {path} is blank"
    result = await commands.run(Command(argv, verb=verb, timeout_s=timeout_s, accept=(0, _DIFFERENT), changes=False))
    return result.exit_code != _DIFFERENT


def parse_export(text: str) -> tuple[Signature, ...]:
    values = dict(line.partition("=")[::2] for line in text.splitlines())
    found = []
    if values.get("TYPE"):
        found.append(
            Signature(values["TYPE"], values.get("USAGE", ""), values.get("UUID", ""), _plain(values.get("LABEL", "")))
        )
    if values.get("PTTYPE"):
        found.append(Signature(values["PTTYPE"], PARTITION_TABLE, values.get("PTUUID", "")))
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
    usage = PARTITION_TABLE if entry["type"] in _TABLES else ""
    return Signature(entry["type"], usage, entry.get("uuid") or "", entry.get("label") or "")


def _plain(text: str) -> str:
    """blkid puts a backslash before what a shell would stumble over."""
    return text.replace("\\", "")
