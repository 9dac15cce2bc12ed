"""`qm edit`: a change that is right is written, and no text is ever lost."""

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from quartermaster.cli.editing import editor_command
from quartermaster.support.errors import UsageError
from tests.cli.conftest import SEED, Cli, node

pytestmark = pytest.mark.slow

Write = Callable[[str, str], Path]


@pytest.fixture
def editor(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """An editor that runs a line of Python on `text`; it returns the file in which each text that it saw is kept."""

    def install(line: str) -> Path:
        seen = tmp_path / "seen"
        script = write(
            "editor.py",
            "import pathlib, re, subprocess, sys\n"
            "path = pathlib.Path(sys.argv[-1])\n"
            "text = path.read_text()\n"
            f"seen = pathlib.Path({str(seen)!r})\n"
            "seen.write_text((seen.read_text() if seen.exists() else '') + text + '=====\\n')\n"
            f"{line}\n"
            "path.write_text(text)\n",
        )
        monkeypatch.setenv("EDITOR", f"{sys.executable} '{script}' --wait")
        return seen

    return install


def test_a_change_is_written_and_the_store_named(cli: Cli, editor: Callable[[str], Path]) -> None:
    cli("apply", "-f", SEED)
    editor("text = text.replace('zone: 1', 'zone: 3')")
    result = cli("edit", "sn", "storage-node1")
    assert (result.code, result.out) == (0, "storagenode.coreos.com/storage-node1 edited\n")
    assert "store: sqlite:" in result.err
    assert cli("get", "sn", "storage-node1", "-o", "jsonpath={.spec.glusterfs.zone}").out == "3"


def test_what_was_edited_is_a_conflict_for_the_next_apply_of_the_file(cli: Cli, editor: Callable[[str], Path]) -> None:
    cli("apply", "-f", SEED)
    editor("text = text.replace('zone: 1', 'zone: 3')")
    cli("edit", "sn", "storage-node1")
    result = cli("apply", "-f", SEED)
    assert result.code == 1
    assert ".spec.glusterfs.zone: owned by qm-edit" in result.err


@pytest.mark.parametrize("line", ["pass", "text = ''", "text += '# a comment\\n'"])
def test_without_a_change_nothing_is_written(cli: Cli, editor: Callable[[str], Path], line: str) -> None:
    cli("apply", "-f", SEED)
    editor(line)
    assert cli("edit", "sn/storage-node1").out == "Edit cancelled, no changes made.\n"


def test_a_mistake_opens_the_editor_again_and_says_what_is_wrong(cli: Cli, editor: Callable[[str], Path]) -> None:
    cli("apply", "-f", SEED)
    seen = editor("text = text.replace('zone: 1', 'zone: -1') if '# Not accepted' not in text else "
                  "text.replace('zone: -1', 'zone: 2')")  # fmt: skip
    assert cli("edit", "sn", "storage-node1").out == "storagenode.coreos.com/storage-node1 edited\n"
    second = seen.read_text().split("=====\n")[1]
    told = re.search(r"^#   line (\d+): spec.glusterfs.zone: ", second, re.MULTILINE)
    assert told is not None
    assert second.splitlines()[int(told[1]) - 1].strip() == "zone: -1"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("text = text.replace('zone: 1', 'zone: -1')", "spec.glusterfs.zone"),
        ("text = text.replace('devices:', 'devicez:')", "spec.devicez"),
        ("text = text.replace('spec:', 'spec: [')", "line "),
        ("text = text.replace('name: storage-node1', 'name: other')", "metadata.name: cannot change"),
        ("text = text.replace('kind: StorageNode', 'kind: StorageStatus')", "kind: cannot change"),
        ("text = text + '---\\n' + text", "there are 2 objects"),
    ],
)
def test_the_same_mistake_twice_gives_up_and_keeps_the_text(
    cli: Cli, editor: Callable[[str], Path], line: str, sentence: str
) -> None:
    cli("apply", "-f", SEED)
    editor(f"if '# Not accepted' not in text:\n    {line}")
    result = cli("edit", "sn", "storage-node1")
    assert result.code == 1
    assert sentence in result.err
    kept = Path(re.findall(r"your text is kept in (\S+)", result.err)[0])
    assert "StorageNode" in kept.read_text() or "StorageStatus" in kept.read_text()
    kept.unlink()


def test_somebody_elses_change_in_between_is_not_overwritten(
    cli: Cli, editor: Callable[[str], Path], write: Write, tmp_path: Path
) -> None:
    cli("apply", "-f", SEED)
    other = write("other.yaml", SEED.read_text().replace("/dev/vdd", "/dev/vde"))
    qm = Path(sys.executable).parent / "qm"
    editor(f"subprocess.run([{str(qm)!r}, 'apply', '-f', {str(other)!r}]); text = text.replace('zone: 1', 'zone: 3')")
    result = cli("edit", "sn", "storage-node1")
    assert result.code == 1
    assert "somebody else changed it meanwhile" in result.err
    kept = Path(re.findall(r"your text is kept in (\S+)", result.err)[0])
    assert "zone: 3" in kept.read_text()
    kept.unlink()
    assert (
        cli("get", "sn", "storage-node1", "-o", "jsonpath={.spec.glusterfs.zone} {.spec.devices[2]}").out
        == "1 /dev/vde"
    )


def test_an_editor_that_fails_writes_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("apply", "-f", SEED)
    monkeypatch.setenv("EDITOR", "false")
    assert "cannot edit: false ended with code 1" in cli("edit", "sn", "storage-node1").err
    monkeypatch.setenv("KUBE_EDITOR", "/nowhere/editor")
    assert "cannot start the editor /nowhere/editor" in cli("edit", "sn", "storage-node1").err


def test_the_editor_is_an_argument_vector_and_kubectls_variable_comes_first() -> None:
    assert editor_command({"KUBE_EDITOR": "code --wait", "EDITOR": "vi"}) == ["code", "--wait"]
    assert editor_command({"VISUAL": "'my editor' -x", "EDITOR": "vi"}) == ["my editor", "-x"]
    assert editor_command({}) == ["vi"]
    with pytest.raises(UsageError, match="cannot read EDITOR"):
        editor_command({"EDITOR": "'open"})


def test_one_object_is_edited_at_a_time(cli: Cli) -> None:
    assert cli("edit", "sn").code == 2
    assert cli("edit", "sn", "a", "b").code == 2


def test_taking_the_last_finalizer_from_an_object_that_is_being_deleted_ends_it(
    cli: Cli, editor: Callable[[str], Path], write: Write
) -> None:
    held = node("a").replace("  name: a\n", "  name: a\n  finalizers: [example.com/hold]\n")
    cli("apply", "-f", write("held.yaml", held))
    cli("delete", "sn", "a", "--no-wait")
    editor("text = text.replace('  finalizers:\\n  - example.com/hold\\n', '')")
    assert cli("edit", "sn", "a").out == "storagenode.coreos.com/a edited; it is deleted now\n"
    assert cli("get", "sn", "a").code == 1


@pytest.mark.parametrize("command", ["false", "/nowhere/editor"])
def test_an_editor_that_changed_nothing_leaves_no_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    cli("apply", "-f", SEED)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("EDITOR", command)
    result = cli("edit", "sn", "storage-node1")
    assert result.code == 2
    assert "is kept" not in result.err
    assert list(tmp_path.glob("qm-edit-*")) == []


def test_without_a_terminal_somebody_must_choose_the_editor(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    result = cli("edit", "sn", "storage-node1")
    assert result.code == 2
    assert "there is no terminal, and no editor is chosen: set EDITOR" in result.err.replace("; ", ": ")
