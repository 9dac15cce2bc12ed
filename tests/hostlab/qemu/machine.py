"""An emulated machine with Debian's own kernel: slow, and with every protocol that hosts have.

It needs no rights of the processor to emulate another one, so it runs wherever the tests do. The root is the machine's
own, as in User-Mode Linux, over 9p.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.hostlab.guest import AGENT, KEEP, Machine
from tests.hostlab.qemu.initrd import make_initrd
from tools.hostlab import QEMU_PACKAGES, build

ROOT = AGENT.parents[2]
BOOT_TIMEOUT_S = 600.0
MEMORY_MIB = 1536
# Everything that a kernel does for others than us takes time here.
QUIET = "quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check lsm= audit=0 cryptomgr.notests"


def emulated(cpu: int) -> Machine:
    layer = build(QEMU_PACKAGES)
    return Machine(lambda directory: command(layer, directory, cpu=cpu), boot_timeout_s=BOOT_TIMEOUT_S)


def command(layer: Path, directory: Path, *, cpu: int) -> list[str]:
    initrd = directory / "initrd"
    initrd.write_bytes(make_initrd(layer, [os.path.abspath(sys.executable), "-X", "faulthandler", str(AGENT)]))
    words = {"LAB_LAYER": layer, "LAB_EXCHANGE": directory, "LAB_SHARES": "9p"}
    told = " ".join(f"{name}={value}" for name, value in words.items())
    own = next((layer / "usr/lib").glob("*-linux-gnu"))
    return [
        *KEEP,
        *("taskset", "--cpu-list", str(cpu), "env", f"LD_LIBRARY_PATH={own}", f"QEMU_MODULE_DIR={own}/qemu"),
        *(str(layer / "usr/bin/qemu-system-x86_64"), "-L", str(layer / "usr/share/qemu")),
        *("-L", str(layer / "usr/share/seabios"), "-M", "q35", "-accel", "tcg,tb-size=512", "-cpu", "max,la57=off"),
        *("-smp", "1", "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-display", "none"),
        *("-serial", "stdio", "-no-reboot"),
        *("-kernel", str(layer / "boot/vmlinux"), "-initrd", str(initrd)),
        *("-append", f"console=ttyS0 {QUIET} random.trust_cpu=on panic=-1 {told}"),
        *shared("machine", Path("/")),
        *shared("layer", layer),
        *shared("checkout", ROOT),
        *shared("exchange", directory, writable=True),
    ]


def shared(name: str, directory: Path, *, writable: bool = False) -> list[str]:
    options = f"local,id={name},path={directory},security_model=none,multidevs=remap"
    return [
        *("-fsdev", options if writable else f"{options},readonly=on"),
        *("-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"),
    ]
