"""What the guide and the example show is what happens."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, SEED, Program

PAGES = ("docs/guide/command-line.md", "examples/02-storage-node/README.md")


def shown(page: str) -> list[tuple[str, str]]:
    """The commands of the page's console blocks, each with what it printed."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def ageless(text: str) -> str:
    return re.sub(r"\b\d+s\b", "0s", text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_prints_what_the_page_shows(qm: Program, page: str) -> None:
    for path in SEED.parent.glob("*.yaml"):
        shutil.copy(path, qm.directory)
    programs = Path(qm.command[0]).parent
    environment = {**qm.environment, "PATH": f"{programs}:{qm.environment['PATH']}", "QM_STORE": "sqlite:store.db"}
    commands = shown(page)
    assert commands
    for command, output in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=qm.directory,
            timeout=60,
            check=False,
        )
        assert ageless(done.stdout) == ageless(output), command
