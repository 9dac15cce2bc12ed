"""The programs of a fake host: what each does to the kernel, whoever calls it.

They know what both libraries say to them and refuse the rest, as the real ones would, by an exit code and a sentence.
"""

from __future__ import annotations

import os

from bench.connectors.kernel import Kernel
from bench.connectors.programs.answer import Answer, Program, said
from bench.connectors.programs.ceph import rbd
from bench.connectors.programs.iscsi import iscsiadm
from bench.connectors.programs.mounts import mount, umount
from bench.connectors.programs.scsi import blockdev, multipathd, scsi_id, sg_vpd, tee


def the_real(name: str) -> Program:
    """One of the system's own, which does here what it always does."""
    # By its last name: the links of /etc/alternatives are not on a fake host.
    program = os.path.realpath(f"/usr/bin/{name}")
    return lambda _kernel, arguments, _stdin: Answer(then=(program, *arguments))


def drv_cfg(_kernel: Kernel, _arguments: list[str], _stdin: str) -> Answer:
    return said("6d2a2a5c-0000-0000-0000-000000000001\n")


PROGRAMS: dict[str, Program] = {
    each.__name__: each for each in (iscsiadm, tee, sg_vpd, scsi_id, blockdev, multipathd, rbd, mount, umount, drv_cfg)
} | {name: the_real(name) for name in ("cat", "dd", "grep", "mkdir", "stat", "which")}
READS_STDIN = ("tee",)
