"""Run in namespaces of its own (see test_real_gluster.py): a GlusterFS server, and a connector that uses it.

Prints one JSON object with what was seen. Whatever it starts or mounts ends with its namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from quartermaster.connectors.blocking import open_connector

ADDRESS = "10.219.7.1"  # on the loopback of this namespace: Gluster does not take 127.0.0.1 for a brick
PRIVATE = ("/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster", "/var/run/gluster")


def run(*argv: str, deadline_s: float = 30.0) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=deadline_s)
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stdout}{done.stderr}")
    return done.stdout


def start_server(directory: Path) -> str:
    """The export of a volume with two files on it."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    for path in dict.fromkeys(os.path.realpath(name) for name in PRIVATE):
        os.makedirs(path, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", path)
    brick = directory / "brick"
    brick.mkdir()
    run("glusterd", f"--pid-file={directory}/glusterd.pid")
    gluster("volume", "create", "gv0", f"{ADDRESS}:{brick}", "force")
    gluster("volume", "start", "gv0")
    return f"{ADDRESS}:/gv0"


def gluster(*words: str) -> None:
    deadline = time.monotonic() + 40
    while True:
        done = subprocess.run(["gluster", "--mode=script", *words], capture_output=True, text=True, timeout=60)
        if not done.returncode:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"gluster {words}: {done.stdout}{done.stderr}")
        time.sleep(0.3)


def mounts() -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "fuse.glusterfs" in line]


def as_a_device(export: str, directory: Path) -> str:
    """A file of the volume, opened without a mount of it."""
    data = {"export": export, "name": "disk", "volumeId": f"gluster-disk-{os.getpid()}-{directory.name}"}
    info = {"driverVolumeType": "GLUSTERFS", "data": data}
    target = directory / "mounted"
    with open_connector(directory=directory / "state", clients={"GLUSTERFS": "userspace"}) as connector:
        attachment = connector.connect(info)
        connector.mount(attachment.volume_id, str(target))
        (target / "kept").write_text("what was written")
        connector.unmount(attachment.volume_id, str(target))
        connector.disconnect(info)
        connector.connect(info)
        connector.mount(attachment.volume_id, str(target), read_only=True)
        kept = (target / "kept").read_text()
        connector.unmount(attachment.volume_id, str(target))
        connector.disconnect(info)
    return kept


def main(directory: Path) -> None:
    export = start_server(directory)
    seen: dict[str, object] = {}
    whole = {"driver_volume_type": "glusterfs", "data": {"export": export, "volume_id": "whole"}}
    with open_connector(directory=directory / "state") as connector:
        began = time.monotonic()
        attachment = connector.connect(whole)
        seen["attach_ms"] = round((time.monotonic() - began) * 1000)
        for name in ("volume-1", "volume-2"):
            Path(attachment.path, name).write_text(f"data of {name}")
        with Path(attachment.path, "disk").open("wb") as disk:
            disk.truncate(64 << 20)
        connector.disconnect(whole)
        seen["mounts after the first disconnect"] = len(mounts())
        infos = [
            {
                "driver_volume_type": "glusterfs",
                "data": {"export": export, "name": name, "options": "-o log-level=ERROR"},
            }
            for name in ("volume-1", "volume-2")
        ]
        paths = [connector.connect(info).path for info in infos]
        seen["mounts of two volumes"] = len(mounts())
        seen["read back"] = [Path(path).read_text() for path in paths]
        connector.disconnect(infos[0])
        seen["mounts after one of two went"] = len(mounts())
        connector.disconnect(infos[1])
        seen["mounts in the end"] = len(mounts())
        seen["records in the end"] = os.listdir(directory / "state/attachments")
        seen["directories in the end"] = os.listdir(directory / "state/mounts")
    seen["read back from a device"] = as_a_device(export, directory)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
