"""A real GlusterFS server and its FUSE client, in namespaces of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_volumes_of_one_export_share_one_mount_that_goes_with_the_last(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(
                "unshare",
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--propagation",
                "private",
            ),
            *(sys.executable, "-m", "tests.connectors.inside_gluster", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("attach_ms") < 10_000
    assert seen == {
        "mounts after the first disconnect": 0,
        "mounts of two volumes": 1,
        "read back": ["data of volume-1", "data of volume-2"],
        "mounts after one of two went": 1,
        "mounts in the end": 0,
        "records in the end": [],
        "directories in the end": [],
        "read back from a device": "what was written",
    }
