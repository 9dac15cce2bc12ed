"""Every command explains itself, starts without what it does not need, and completes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from quartermaster import __version__
from quartermaster.cli.root import COMMANDS, root
from tests.cli.conftest import Cli, Program, node


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(root, info_name="qm")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                inner = command.get_command(context, child)
                assert inner is not None
                yield f"{name} {child}", inner


ALL = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_root_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    assert ALL[name].get_short_help_str(200) == COMMANDS[name]


@pytest.mark.parametrize("name", ALL)
def test_every_help_has_an_example_that_names_the_command(cli: Cli, name: str) -> None:
    result = cli(*name.split(), "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"qm {name}" in result.out.partition("Examples:")[2]


@pytest.mark.parametrize("name", ALL)
def test_every_option_says_what_it_does(name: str) -> None:
    options = [parameter for parameter in ALL[name].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.slow
def test_a_command_that_is_not_there_is_told_with_the_nearest(qm: Program) -> None:
    result = qm("aply")
    assert result.code == 2
    assert 'there is no command "aply"; did you mean "apply"?' in result.err


@pytest.mark.slow
def test_help_imports_nothing_that_it_does_not_need(environment: dict[str, str]) -> None:
    script = "import sys; from quartermaster.cli.root import run; run(['--help']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"asyncio", "yaml", "msgspec", "rich", "structlog", "jsonschema", "aiohttp", "grpc", "sqlite3", "difflib"}
    assert loaded & heavy == set()


@pytest.mark.slow
def test_get_on_the_embedded_store_imports_no_client_of_a_server(environment: dict[str, str]) -> None:
    script = "import sys; from quartermaster.cli.root import run; run(['get', 'sn']); print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"yaml", "rich", "structlog", "jsonschema", "aiohttp", "grpc", "quartermaster.engine", "prometheus_client"}
    assert loaded & heavy == set()


def test_the_version_is_that_of_the_program_and_the_store(cli: Cli) -> None:
    assert "quartermaster 0.1.0, Python 3" in cli("version").out
    result = cli("version", "-o", "json", "--client")
    assert '"client": "0.1.0"' in result.out
    assert "store" not in result.out
    assert cli("version", "-o", "yaml").out.endswith("version: SQLite " + __import__("sqlite3").sqlite_version + "\n")
    assert cli("version", "-o", "wide").code == 2


def test_a_store_that_does_not_answer_is_part_of_the_version(cli: Cli) -> None:
    result = cli("version", "--store", "sqlite:/nowhere/at/all.db")
    assert result.code == 1
    assert "does not answer" in result.out
    assert "the directory /nowhere/at does not exist" in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_asks_the_program(cli: Cli, shell: str) -> None:
    assert f"_QM_COMPLETE={shell}_complete" in cli("completion", shell).out


def complete(qm: Program, line: str) -> list[str]:
    """What bash would offer; a line that ends with a blank asks for a new word."""
    words = line.split()
    position = len(words) if line.endswith(" ") else len(words) - 1
    result = qm(_QM_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(position))
    assert result.err == ""
    return [entry.partition(",")[2] for entry in result.lines if entry]


@pytest.mark.slow
def test_commands_kinds_names_and_options_are_completed(qm: Program, home: Path) -> None:
    assert complete(qm, "qm des") == ["describe"]
    assert complete(qm, "qm get storagen") == ["storagenodes"]
    assert complete(qm, "qm get storagenodes,storages") == [
        "storagenodes,storages",
        "storagenodes,storagestatuses",
    ]
    assert complete(qm, "qm get sn ") == []
    assert not (home / ".local").exists()
    qm("apply", "-f", "-", stdin=node("alpha") + "---\n" + node("beta"))
    assert complete(qm, "qm get sn ") == ["alpha", "beta"]
    assert complete(qm, "qm describe sn/al") == ["sn/alpha"]
    assert complete(qm, "qm delete sn alpha ") == ["beta"]
    assert "--field-selector" in complete(qm, "qm get sn --f")
    assert complete(qm, "qm get sn -o ") == ["wide", "yaml", "json", "name", "jsonpath="]
    assert complete(qm, "qm get sn -n ") == ["default"]


@pytest.mark.slow
def test_completion_of_a_store_that_is_away_is_quick_and_silent(qm: Program) -> None:
    assert complete(qm, "qm --store etcd://127.0.0.1:1 get sn ") == []
    assert complete(qm, "qm --store nonsense get sn ") == []


@pytest.mark.slow
def test_the_version_is_an_option_too_and_the_package_runs(cli: Cli) -> None:
    said = f"quartermaster {__version__}\n"
    assert cli("--version").out == said
    run = [sys.executable, "-m", "quartermaster", "--version"]
    assert subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stdout == said
