"""The reference page has every command and every option, and is as the program says."""

import click
import pytest

from tests.cli.conftest import ROOT
from tests.cli.test_help import ALL
from tools.reference import PATH, command_line

PAGE = (ROOT / PATH).read_text()
GUIDE = (ROOT / "docs" / "guide" / "command-line.md").read_text()


def test_the_page_is_up_to_date() -> None:
    assert command_line()[PATH] == PAGE, "run `make generate`"


@pytest.mark.parametrize("name", ALL)
def test_every_command_and_every_option_is_there(name: str) -> None:
    _, _, section = PAGE.partition(f"# qm {name}\n")
    section = section.partition("\n## ")[0]
    assert section
    for parameter in ALL[name].params:
        if isinstance(parameter, click.Option):
            assert [option for option in parameter.opts if option not in section] == []


@pytest.mark.parametrize("name", [name for name in ALL if " " not in name])
def test_the_guide_shows_every_command(name: str) -> None:
    assert f"qm {name}" in GUIDE
