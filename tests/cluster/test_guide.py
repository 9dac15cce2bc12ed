"""What the pages about several hosts show is what happens: each command is typed on the virtual host that it names.

A page's `shell-session` blocks are a talk with hosts: `h1$` begins a command, what follows is its output. TOKEN stands
for what `qm token create` printed last.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from quartermaster.operators.settings import HostSettings, write_settings
from quartermaster.support.errors import CommandError
from quartermaster.testing.lab import Lab, VirtualHost

from .sites import PATIENCE_S, ROOT, TIMINGS

EXAMPLE = ROOT / "examples" / "05-three-hosts"
# In this order: the second goes on where the first ends.
PAGES = ("docs/guide/getting-started.md", "examples/05-three-hosts/README.md")


def typed(page: str) -> list[tuple[str, str, str]]:
    """(host, command, what it prints), in the order in which a reader comes to them."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```shell-session\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^(?=\w+\$ )", block, flags=re.MULTILINE) if part]
    found = [re.fullmatch(r"(\w+)\$ ([^\n]*)\n(.*)", part, re.DOTALL) for part in parts]
    return [(one[1], one[2], one[3]) for one in found if one is not None]


def steady(text: str) -> str:
    """Without what differs from run to run: ages and sizes, and so the widths of columns."""
    text = re.sub(r"\b[\d.]+ ?[KMGT]iB?\b", "SIZE", text)
    text = re.sub(r"\b\d+s\b", "AGE", text)
    return re.sub(r" {2,}", "  ", text)


class Talk:
    """Types what a page shows. A host that is not there yet is plugged in when it is first typed on."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self._lab = lab
        self._directory = directory
        self._token = ""
        for host in lab.hosts:
            hurry(host)

    async def say(self, name: str, command: str) -> str:
        if name not in [host.name for host in self._lab.hosts]:
            hurry(await self._lab.add_host(name, disks=2, disk_size="2Gi"))
        script = f"cd {self._directory} && " + command.replace("TOKEN", self._token)
        environment = {"NO_COLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        try:
            done = await self._lab.host(name).run(["bash", "-c", script], PATIENCE_S, environment)
        except CommandError as error:
            raise AssertionError(f"{name}$ {command}\n{error.stderr}") from error
        if command != "qm token create":
            return done.text
        self._token = done.text.strip()
        return "TOKEN\n"


def hurry(host: VirtualHost) -> None:
    """By default changes are merged for 5 s: a test has less time."""
    write_settings(host.state, HostSettings(name=host.name, timings=TIMINGS))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_something_to_type(page: str) -> None:
    assert any(command.startswith("qm ") for _, command, _ in typed(page))


@pytest.mark.netns
@pytest.mark.etcd
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_command_prints_what_the_pages_show(tmp_path: Path) -> None:
    files = tmp_path / "files"
    shutil.copytree(EXAMPLE, files)
    async with await Lab.create(tmp_path / "lab", hosts=3, disks=2, disk_size="2Gi", name="guide") as lab:
        talk = Talk(lab, files)
        for page in PAGES:
            for host, command, output in typed(page):
                printed = await talk.say(host, command)
                ends = time.monotonic() + PATIENCE_S
                # ONLINE it is with the first node; a reader takes longer to type than the others to follow.
                while command == "qm status" and steady(printed) != steady(output) and time.monotonic() < ends:
                    printed = await talk.say(host, command)
                assert steady(printed) == steady(output), f"{page}: {host}$ {command}"
