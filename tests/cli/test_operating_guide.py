"""What the operating guide and its example show is what happens, on a host that is brought up for it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Program
from tests.cli.test_guide import END, shown
from tests.cli.test_volume_guide import plain

EXAMPLE = Path("examples/03-a-local-cluster")
# Each page, and what its reader has done before.
PAGES = {"examples/03-a-local-cluster/README.md": "", "docs/guide/operating.md": "qm up --single --name box\n"}


@pytest.fixture
def host(qm: Program) -> Iterator[Program]:
    programs = Path(qm.command[0]).parent
    qm.environment.update(PATH=f"{programs}:{qm.environment['PATH']}", QM_STATE_DIR=str(qm.directory / "state"))
    yield qm
    qm("down")


def steady(text: str) -> str:
    return re.sub(r"[\d.]+ [KMGT]iB", "SIZE", plain(text))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_what_the_page_shows(host: Program, page: str) -> None:
    shutil.copytree(ROOT / EXAMPLE, host.directory / EXAMPLE)
    commands = shown(page)
    assert commands
    script = "".join(f"{command}\necho '{END}'\n" for command, _ in commands)
    done = subprocess.run(
        ["bash", "-c", f"{PAGES[page]}echo '{END}'\n{script}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=host.environment,
        cwd=host.directory / EXAMPLE,
        timeout=90,
        check=False,
    )
    printed = done.stdout.split(f"{END}\n")[1:]
    assert printed.pop() == "", done.stderr
    assert [steady(text) for text in printed] == [steady(output) for _, output in commands], done.stderr
