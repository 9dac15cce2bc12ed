"""What the documents at the root say of the tree is so."""

import re
from pathlib import Path

import pytest

from tools.generate import ROOT

PACKAGE = ROOT / "src" / "quartermaster"
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "changelog.d/*.md") for path in ROOT.glob(pattern)
)


def quoted_paths(text: str) -> list[str]:
    """What stands in backticks and looks like a path: it has a slash, or the ending of a file."""
    words = re.findall(r"`([^`\s]+)`", text)
    return [
        word for word in words if re.fullmatch(r"[\w./-]+", word) and ("/" in word or word.endswith((".py", ".md")))
    ]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_path_that_is_named_is_there(document: str) -> None:
    named = quoted_paths((ROOT / document).read_text())
    assert named
    bases = (ROOT, PACKAGE)
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []


def test_the_map_has_every_room_and_no_other() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    rooms = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    assert sorted(rooms) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_the_rooms_stand_in_the_order_in_which_imports_go() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    contract = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    assert re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE) == re.findall(r'"quartermaster\.(\w+)"', contract)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []
