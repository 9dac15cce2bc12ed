"""mount and umount: in the kernel's table, and for real in the namespace of whoever calls them."""

from __future__ import annotations

from bench.connectors.kernel import Kernel
from bench.connectors.programs.answer import Answer, failed
from quartermaster.testing.arguments import option


def mount(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    plain = [word for word in arguments if not word.startswith("-") and "=" not in word]
    source = option(arguments, "--source") or plain[-2]
    target = option(arguments, "--target") or plain[-1]
    if target in kernel.mounts:
        return failed(32, f"mount.nfs: {target} is busy or already mounted")
    kernel.mounts.add(target, source)
    return Answer(then=("/usr/bin/mount", "-t", "tmpfs", source, target))


def umount(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    target = arguments[-1]
    if not kernel.mounts.drop(target):
        return failed(32, f"umount: {target}: not mounted.")
    return Answer(then=("/usr/bin/umount", target))
