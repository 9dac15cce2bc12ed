"""Virtual hosts: several hosts on one machine, with a network, disks and a state of their own, to test clusters on.

    async with await Lab.create(directory, hosts=3, disks=2, disk_size="2Gi") as lab:
        one, two, three = lab.hosts
        await one.run(["ping", "-c", "1", two.address])
        agent = await one.spawn(["qm", "agent"])
        await two.cut()
        await three.kill()

A host is a set of namespaces (network, mounts, names, IPC, processes) with a first process of ours. `kill` ends that
one, and the kernel everything on the host with it; `boot` starts it again with the same disks and directories. A lab
ends with the process that made it, unless it is made with `keep=True`; then `Lab.open(directory).destroy()` ends it,
from any process and however far its making got. It needs root.

Processes on a host find these variables, and read them in place of options:

    QM_DEVICE_ROOT   the device root (quartermaster.host.devices.roots): /dev, whose only disks are /dev/vdb and so on,
                     each with a stand-in for what the hardware says; give it to `open_host(…, device_root=…)`
    QM_STATE_DIR     where an agent keeps what must outlive it: /var/lib/quartermaster; on the machine that is
                     `host.state`
    HOME             a directory of this host alone, that persists

`/etc`, `/var/lib` and `/var/log` of a host are the machine's with the host's own changes over them, and persist. `/run`
is empty at every start, and the boot id is a new one. All else is the machine's, so programs and tests are there.
"""

from quartermaster.testing.lab.host import VirtualHost
from quartermaster.testing.lab.lab import Lab
from quartermaster.testing.lab.processes import LabProcess
from quartermaster.testing.lab.state import DiskState, LabError

__all__ = [
    "DiskState",
    "Lab",
    "LabError",
    "LabProcess",
    "VirtualHost",
]
