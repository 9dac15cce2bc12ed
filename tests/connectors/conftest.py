"""What the tests on this machine's own kernel share."""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def image(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A blank file, of the module's SIZE."""
    file = tmp_path / "disk.img"
    file.touch()
    os.truncate(file, request.module.SIZE)
    return file


def unmount_everywhere(directory: Path) -> None:
    """Whatever is mounted in the directory, also in the mount namespaces of virtual hosts that other tests have started
    meanwhile: each has a copy of this host's mounts, and keeps their devices in use."""
    for process in ["self", *(entry.name for entry in Path("/proc").glob("[0-9]*"))]:
        try:
            lines = Path("/proc", process, "mountinfo").read_text().splitlines()
        except OSError:
            continue
        targets = [line.split(" ")[4] for line in lines]
        for target in reversed([target for target in targets if target.startswith(f"{directory}/")]):
            argv = ["nsenter", f"--mount=/proc/{process}/ns/mnt", "umount", "--lazy", target]
            subprocess.run(argv, check=False, capture_output=True, timeout=60)
