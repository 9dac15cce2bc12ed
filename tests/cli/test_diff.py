"""`qm diff`: what an apply would change, with kubectl's exit codes."""

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import SEED, Cli, node

Write = Callable[[str, str], Path]


def test_no_difference_is_silence(cli: Cli) -> None:
    cli("apply", "-f", SEED)
    result = cli("diff", "-f", SEED)
    assert (result.code, result.out, result.err) == (0, "", "")


def test_a_difference_is_a_unified_diff_and_exit_code_1(cli: Cli, write: Write) -> None:
    cli("apply", "-f", SEED)
    result = cli("diff", "-f", write("a.yaml", SEED.read_text().replace("zone: 1", "zone: 2")))
    assert result.code == 1
    assert result.lines[:2] == [
        "--- live/default/storagenode.coreos.com/storage-node1",
        "+++ applied/default/storagenode.coreos.com/storage-node1",
    ]
    assert [line for line in result.lines[2:] if line.startswith(("+", "-"))] == ["-    zone: 1", "+    zone: 2"]


def test_what_is_not_there_yet_is_all_new(cli: Cli) -> None:
    result = cli("diff", "-f", SEED)
    assert result.code == 1
    assert result.lines[0] == "--- /dev/null"
    assert "uid" not in result.out
    assert cli("get", "sn").out == ""


def test_what_cannot_be_told_is_exit_code_2(cli: Cli, write: Write) -> None:
    assert cli("diff", "-f", write("a.yaml", node("a", devicez="[]"))).code == 2
    assert cli("diff", "-f", "nothing.yaml").code == 2
    cli("apply", "--field-manager", "operator", "-f", write("b.yaml", node("b", glusterfs="{zone: 1}")))
    conflict = cli("diff", "-f", write("b.yaml", node("b", glusterfs="{zone: 2}")))
    assert conflict.code == 2
    assert "owned by operator" in conflict.err
    assert cli("diff", "--force-conflicts", "-f", "b.yaml").code == 1


def test_a_secret_is_never_shown(cli: Cli, write: Write) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: aHVudGVyMg==}\n"
    cli("apply", "-f", write("s.yaml", secret))
    result = cli("diff", "-f", write("s.yaml", secret.replace("aHVudGVyMg==", "bmV3")))
    assert result.code == 1
    assert "-  password: '*** (before)'" in result.lines
    assert "aHVudGVyMg" not in result.out
