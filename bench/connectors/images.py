"""Images of Ceph that a simulated kernel has mapped."""

from __future__ import annotations

import os
import shutil

from bench.connectors.tree import Tree

FSID = "0f1e2d3c-aaaa-bbbb-cccc-123456789abc"


class Images:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._count = 0

    def map(self, pool: str, image: str, monitors: str, user: str) -> str:
        number, self._count = self._count, self._count + 1
        name = f"rbd{number}"
        own = f"devices/rbd/{number}"
        attributes = {
            "pool": pool,
            "pool_ns": "",
            "name": image,
            "current_snap": "-",
            "cluster_fsid": FSID,
            "refresh": "",
        }
        self._tree.attributes(
            own, **attributes, config_info=f"{monitors} name={user},key=client.{user} {pool} {image} -"
        )
        self._tree.attributes(f"{own}/block/{name}", dev=f"251:{number}", size="20480")
        self._tree.link(f"sys/{own}/block/{name}/device", f"sys/{own}")
        for place in ("class/block", "block"):
            self._tree.link(f"sys/{place}/{name}", f"sys/{own}/block/{name}")
        self._tree.node(name)
        (self._tree.root / "dev/rbd" / pool).mkdir(parents=True, exist_ok=True)
        self._tree.link(f"dev/rbd/{pool}/{image}", f"dev/{name}", replace=True)
        return f"/dev/{name}"

    def all(self) -> list[dict[str, str]]:
        found = []
        for name in sorted(path.name for path in (self._tree.root / "sys/class/block").iterdir()):
            directory = (self._tree.root / "sys/class/block" / name).resolve().parent.parent
            if name.startswith("rbd"):
                pool, image = ((directory / part).read_text() for part in ("pool", "name"))
                number = name.removeprefix("rbd")
                found.append(
                    {"id": number, "pool": pool, "namespace": "", "name": image, "snap": "-", "device": f"/dev/{name}"}
                )
        return found

    def unmap(self, device: str) -> bool:
        name = os.path.basename(os.path.realpath(self._tree.root / device.lstrip("/")))
        found = self._tree.root / "sys/class/block" / name
        if not found.is_symlink():
            return False
        own = found.resolve().parent.parent
        pool, image = ((own / part).read_text() for part in ("pool", "name"))
        for place in (f"dev/rbd/{pool}/{image}", f"dev/{name}", f"sys/class/block/{name}", f"sys/block/{name}"):
            (self._tree.root / place).unlink(missing_ok=True)
        shutil.rmtree(own)
        return True
