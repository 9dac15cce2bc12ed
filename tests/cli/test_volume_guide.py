"""What the pages about volumes show is what happens: each is run as its reader would, on a host of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Program
from tests.cli.test_guide import END, shown

EXAMPLE = Path("examples/04-a-volume")
PAGES = ("examples/04-a-volume/README.md", "docs/guide/getting-started.md", "docs/guide/volumes.md")


@pytest.fixture
def host(qm: Program) -> Iterator[Program]:
    """Whatever the page leaves running is stopped."""
    programs = Path(qm.command[0]).parent
    qm.environment.update(PATH=f"{programs}:{qm.environment['PATH']}", QM_STATE_DIR=str(qm.directory / "state"))
    yield qm
    for target in qm.directory.rglob("data"):
        if os.path.ismount(target):
            subprocess.run(["umount", str(target)], check=True)
    qm("down")


def plain(text: str) -> str:
    """Without what differs from run to run: names, ages, sizes, and so the widths of columns."""
    text = text.replace(os.uname().nodename.lower(), "box")
    text = re.sub(r"pvc-[0-9a-f-]{36}", "pvc-UID", text)
    text = re.sub(r"\b\d+[KMGT]i\b", "SIZE", text)
    text = re.sub(r"\b\d+s\b", "0s", text)
    return re.sub(r" {2,}", "  ", text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_what_the_page_shows(host: Program, page: str) -> None:
    shutil.copytree(ROOT / EXAMPLE, host.directory / EXAMPLE)
    commands = shown(page)
    assert commands
    done = subprocess.run(
        ["bash", "-c", "".join(f"{command}\necho '{END}'\n" for command, _ in commands)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=host.environment,
        cwd=host.directory / EXAMPLE,
        timeout=90,
        check=False,
    )
    printed = done.stdout.split(f"{END}\n")
    assert printed.pop() == "", done.stderr
    assert [plain(text) for text in printed] == [plain(output) for _, output in commands], done.stderr
