"""`qm` as people run it (a process of its own, in a home of its own), and the same in this process for breadth."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from quartermaster.cli.root import run

ROOT = Path(__file__).resolve().parents[2]
SEED = ROOT / "examples" / "02-storage-node" / "storage-node.yaml"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def node(name: str, **fields: str) -> str:
    """A StorageNode as YAML; `fields` are lines of its spec."""
    spec = "".join(f"  {key}: {value}\n" for key, value in {"type": "glusterfs", **fields}.items())
    return f"apiVersion: coreos.com/v1\nkind: StorageNode\nmetadata:\n  name: {name}\nspec:\n{spec}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


@pytest.fixture
def environment(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Nothing of the machine's configuration, and compiled modules as an installed program has them."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "KUBEBUILDER_ASSETS") if name in os.environ}
    compiled = tmp_path_factory.getbasetemp() / "compiled"
    return {**kept, "HOME": str(home), "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONUTF8": "1", "NO_COLOR": "1"}


class Program:
    """The installed `qm`."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self.environment = environment
        self.directory = directory
        self.command = [str(Path(sys.executable).parent / "qm")]

    def __call__(self, *arguments: str | Path, stdin: str = "", **environment: str) -> Result:
        done = subprocess.run(
            [*self.command, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.directory,
            env={**self.environment, **environment},
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=self.environment,
        )


@pytest.fixture
def qm(environment: dict[str, str], tmp_path: Path) -> Program:
    return Program(environment, tmp_path)


@pytest.fixture
def running(qm: Program) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Commands that go on until they are interrupted; whatever is left is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = qm.start(*arguments)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> Result:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Result(process.returncode, out, err)


Cli = Callable[..., Result]


@pytest.fixture
def cli(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """The same without a process of its own: quick, for the many cases."""
    for name in list(os.environ):
        if name.startswith(("QM_", "KUBE", "XDG_", "_QM")) or name in ("EDITOR", "VISUAL"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, stdin: str = "") -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def create(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return create


def table(text: str) -> list[list[str]]:
    """The cells of a table whose cells have no blanks."""
    return [line.split() for line in text.splitlines()]
