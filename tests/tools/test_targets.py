"""What `make` runs: each target needs what it names and nothing that a new machine lacks."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.generate import ROOT
from tools.verify import FAST

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# A fast test may not need what `make check` does not install: these programs, or the rights of root.
NEEDS = re.compile(r'"(strace|mount|umount|unshare|losetup)"')


def commands(target: str, *variables: str) -> str:
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target, *variables],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


def test_benchmarks_build_the_servers_that_they_measure() -> None:
    shown = commands("bench", "QUICK=1")
    assert 0 < shown.index("tools.servers build") < shown.index("bench --bench all --quick")


@pytest.mark.parametrize("target", ["check", "test", "test-deep", "bench", "demo", "format", "generate"])
def test_every_target_sets_up_the_environment_first(target: str) -> None:
    assert "tools/setup.py environment" in commands(target).splitlines()[0]


def test_the_demo_is_told_when_its_environment_began_to_be_set_up() -> None:
    assert re.search(r" tools\.demo --began \d+\.\d+ --keep$", commands("demo", "KEEP=1"), re.MULTILINE)


def marked_slow(node: ast.FunctionDef | ast.AsyncFunctionDef, module_marks: str) -> bool:
    marks = " ".join(ast.unparse(decorator) for decorator in node.decorator_list) + module_marks
    return bool(re.search(r"mark\.(slow|netns|etcd|kubernetes|deep)\b", marks))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def fast_tests_that_need_more(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    module_marks = "".join(
        ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Assign) and "pytestmark" in [ast.unparse(target) for target in node.targets]
    )
    demanding = {node.name for node in functions(tree) if NEEDS.search(ast.unparse(node).replace("'", '"'))}
    found = []
    for node in functions(tree):
        uses = {argument.arg for argument in node.args.args} | {node.name}
        if node.name.startswith("test_") and uses & demanding and not marked_slow(node, module_marks):
            found.append(f"{path.name}: {node.name}")
    return found


@pytest.mark.slow
def test_the_fast_tests_need_neither_packages_nor_root() -> None:
    assert "not slow" in FAST
    assert "packages" not in commands("check")
    files = [*(ROOT / "tests" / "stores").rglob("test_*.py"), *(ROOT / "tests" / "cli").rglob("test_*.py")]
    assert [name for path in sorted(files) for name in fast_tests_that_need_more(path)] == []


def test_a_dependency_of_the_program_is_imported_by_it() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", sources, re.MULTILINE))
    modules = {"PyYAML": "yaml", "prometheus-client": "prometheus_client", "grpcio": "grpc", "protobuf": "google"}
    table = PROJECT["project"]
    wanted = [*table["dependencies"], *table["optional-dependencies"]["kubernetes"]]
    names = [re.split(r"[><=\[]", requirement)[0] for requirement in wanted]
    assert [name for name in names if modules.get(name, name) not in imported] == []


def test_the_versions_of_python_that_are_claimed_are_those_that_are_tested() -> None:
    claimed = re.findall(r":: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    tested = re.search(r"Tested with: .*?Python (3\.\d+)", (ROOT / "README.md").read_text(), re.DOTALL)
    assert tested
    assert claimed == [tested.group(1)]


def test_types_are_checked_in_the_tools_too() -> None:
    assert "tools" in PROJECT["tool"]["mypy"]["packages"]
