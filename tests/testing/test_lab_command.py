"""`qm lab`, as people use it from a terminal."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quartermaster.cli.root import run
from tests.cli.test_guide import shown
from tests.testing.lab_traces import traces_of

QM = str(Path(sys.executable).parent / "qm")


class Terminal:
    def __init__(self, home: Path) -> None:
        self.labs = home / "quartermaster/labs"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "NO_COLOR": "1",
        }

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What `qm lab` prints; on standard error when it is to fail."""
        done = subprocess.run(
            [QM, "lab", *arguments], capture_output=True, text=True, timeout=60, env=self._environment, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout


@pytest.fixture
def qm_lab(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found("down", "--all")


@pytest.mark.netns
@pytest.mark.slow
def test_a_lab_from_up_to_down(qm_lab: Terminal) -> None:
    made = qm_lab("up", "--hosts", "2", "--disks", "1", "--disk-size", "64Mi").splitlines()
    assert [line.split(",")[0] for line in made] == ["lab/h1 made", "lab/h2 made"]
    traces = traces_of(qm_lab.labs / "lab")
    assert qm_lab("up", "--hosts", "2") == "lab/h1 is up already\nlab/h2 is up already\n"
    assert qm_lab("exec", "h1", "--", "sh", "-c", "hostname; echo $QM_DEVICE_ROOT") == "h1\n/dev\n"
    assert "cannot" not in qm_lab("exec", "h1", "sh", "-c", "exit 7", code=7)
    assert (
        qm_lab("disk", "add", "h1", "--size", "128Mi", "--serial", "S1") == "lab/h1 /dev/vdc added, 128Mi, serial S1\n"
    )
    assert qm_lab("disk", "lose", "h1", "/dev/vdb") == "lab/h1 /dev/vdb lost, 64Mi, serial H1-0001\n"
    assert qm_lab("cut", "h2") == "lab/h2 cut off\n"
    listed = qm_lab("list").splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["LAB", "HOST", "STATE"],
        ["lab", "h1", "up"],
        ["lab", "h2", "cut"],
    ]
    assert listed[1].endswith("vdb (lost),vdc")
    assert qm_lab("disk", "replace", "h1", "vdb") == "lab/h1 /dev/vdb replaced, 64Mi, serial H1-0003\n"
    assert qm_lab("heal", "h2") == "lab/h2 connected\n"
    assert qm_lab("kill", "h1", "h2") == "lab/h1 killed\nlab/h2 killed\n"
    (document,) = json.loads(qm_lab("list", "-o", "json"))
    assert [host["state"] for host in document["hosts"]] == ["down", "down"]
    assert "cannot use the host h1: it is down" in qm_lab("exec", "h1", "true", code=1)
    assert qm_lab("boot", "h1") == "lab/h1 up\n"
    assert qm_lab("up") == "lab/h1 is up already\nlab/h2 started\n"
    assert qm_lab("add", "--disks", "0").startswith("lab/h3 added, ")
    assert qm_lab("remove", "h3") == "lab/h3 removed\n"
    assert qm_lab("down") == "lab taken away\n"
    assert traces.left_after_settling() == []
    assert qm_lab("list") == ""


@pytest.mark.netns
@pytest.mark.slow
def test_with_several_labs_a_host_is_named_with_its_lab(qm_lab: Terminal) -> None:
    for name in ("one", "two"):
        qm_lab("up", name, "--hosts", "1", "--disks", "0")
    assert "cannot tell which lab is meant: there are one, two; say LAB or LAB/HOST" in qm_lab("kill", "h1", code=2)
    assert 'cannot find the lab "three"; there are: one, two' in qm_lab("kill", "three/h1", code=1)
    assert 'cannot find the host "h2" in the lab two; there are: h1' in qm_lab("kill", "one/h1", "two/h2", code=1)
    assert {line.split()[2] for line in qm_lab("list").splitlines()[1:]} == {"up"}, "nothing was done to the first"
    assert qm_lab("exec", "two/h1", "hostname") == "h1\n"
    assert qm_lab("down", "--all") == "one taken away\ntwo taken away\n"


def test_without_root_the_remedy_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for arguments in (["up"], ["kill", "h1"], ["exec", "h1", "true"], ["disk", "add", "h1"]):
        assert run(["lab", *arguments]) == 1
        assert "that needs root; run it with sudo" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_lab_it_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run(["lab", "list"]) == 0
    assert capsys.readouterr().err == "There are no labs; `qm lab up` makes one.\n"
    assert run(["lab", "kill", "h1"]) == 1
    assert "cannot find a lab: there is none; `qm lab up` makes one" in capsys.readouterr().err
    assert run(["lab", "down"]) == 0
    assert capsys.readouterr().err == "There are no labs.\n"
    assert run(["lab", "list", "-o", "name"]) == 2
    assert run(["lab", "up", "--disk-size", "much"]) == 1
    assert "much" in capsys.readouterr().err


def unnumbered(text: str) -> str:
    """Another lab of the machine may have the first subnet."""
    return re.sub(r"\b(10\.200|198\.1[89])\.\d+\.(\d+)", r"10.200.0.\2", text)


@pytest.mark.netns
@pytest.mark.slow
def test_the_guide_shows_what_happens(qm_lab: Terminal) -> None:
    commands = shown("docs/guide/lab.md")
    assert len(commands) > 8
    for command, output in commands:
        words = shlex.split(command)
        assert words[:2] == ["qm", "lab"]
        assert (command, unnumbered(qm_lab(*words[2:]))) == (command, output)
