"""What the README, the guide and the example show is what happens."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, SEED, Program

EXAMPLE = SEED.parent.relative_to(ROOT)
# Each page, and the directory in which its reader stands.
PAGES = {
    "README.md": Path(),
    "docs/guide/command-line.md": EXAMPLE,
    "examples/02-storage-node/README.md": EXAMPLE,
}
END = "-- end of the output --"


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
    shutil.copytree(ROOT / EXAMPLE, qm.directory / EXAMPLE)
    programs = Path(qm.command[0]).parent
    environment = {**qm.environment, "PATH": f"{programs}:{qm.environment['PATH']}", "QM_STORE": "sqlite:store.db"}
    commands = shown(page)
    assert commands
    # One shell for the whole page, as its reader has: a `cd` and an `export` last.
    done = subprocess.run(
        ["bash", "-c", "".join(f"{command}\necho '{END}'\n" for command, _ in commands)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=qm.directory / PAGES[page],
        timeout=60,
        check=False,
    )
    printed = done.stdout.split(f"{END}\n")
    assert printed.pop() == ""
    assert [ageless(text) for text in printed] == [ageless(output) for _, output in commands]


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60


def test_a_reader_who_sees_a_command_sees_its_output() -> None:
    """A command in a block that no test runs may show anything."""
    for page in PAGES:
        assert re.findall(r"^ {4}\$ .*", (ROOT / page).read_text(), re.MULTILINE) == []
