"""Which store is used, and why."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from quartermaster.stores import kubernetes
from tests.cli.conftest import SEED, Cli

KUBECONFIG = "apiVersion: v1\nkind: Config\ncurrent-context: lab\ncontexts: []\n"


def test_the_option_rules_over_everything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QM_STORE", "memory:")
    assert "etcd://a:1\nbecause of: --store" in cli("--store", "etcd://a:1", "context", "show").out


def test_then_the_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("context", "set", "lab", "--store", "etcd://a:1")
    cli("context", "use", "lab")
    monkeypatch.setenv("QM_STORE", "memory:")
    assert "memory:\nbecause of: QM_STORE" in cli("context", "show").out


def test_then_the_saved_context(cli: Cli, write: Callable[[str, str], Path]) -> None:
    write("home/.kube/config", KUBECONFIG)
    cli("context", "set", "lab", "--store", "etcd://a:1", "--namespace", "storage")
    cli("context", "use", "lab")
    assert cli("context", "show").lines == [
        "store:      etcd://a:1",
        "because of: context lab",
        "namespace:  storage",
    ]


def test_then_the_cluster_that_it_runs_in(
    cli: Cli, write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("home/.kube/config", KUBECONFIG)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    directory = write("account/token", "t").parent
    monkeypatch.setattr(kubernetes, "runs_in_cluster", partial(kubernetes.runs_in_cluster, directory=directory))
    assert "kubernetes:in-cluster" in cli("context", "show").out


def test_then_the_kubeconfig(cli: Cli, write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    write("home/.kube/config", KUBECONFIG)
    assert "kubernetes:lab\nbecause of: the kubeconfig's current context" in cli("context", "show").out
    other = write("other", KUBECONFIG.replace("lab", "elsewhere"))
    monkeypatch.setenv("KUBECONFIG", f"{other}:ignored")
    assert "kubernetes:elsewhere" in cli("context", "show").out


def test_else_the_embedded_file(cli: Cli, home: Path) -> None:
    assert f"sqlite:{home}/.local/state/quartermaster/store.db\nbecause of: the embedded store" in (
        cli("context", "show").out
    )


def test_a_broken_kubeconfig_is_told(cli: Cli, write: Callable[[str, str], Path]) -> None:
    path = write("home/.kube/config", "users: [{name: a, user: {token: hunter2}]")
    result = cli("get", "sn")
    assert result.code == 2
    assert f"error: cannot parse kubeconfig {path}: line 1" in result.err
    assert "hunter2" not in result.err


def test_a_variable_that_names_no_kubeconfig_does_not_mean_the_embedded_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/nothing")
    result = cli("apply", "-f", SEED)
    assert result.code == 2
    assert f"cannot read {tmp_path}/nothing: it is not there" in result.err


def test_going_back_undoes_a_use(cli: Cli) -> None:
    for name in ("a", "b"):
        cli("context", "set", name, "--store", f"sqlite:{name}.db")
    assert cli("context", "use", "a").out == 'context "a" is used now\n'
    cli("context", "use", "b")
    assert cli("context", "use", "-").out == 'context "a" is used now\n'
    assert cli("context", "use", "-").out == 'context "b" is used now\n'


def test_going_back_from_the_first_one_uses_none(cli: Cli) -> None:
    cli("context", "set", "a", "--store", "sqlite:a.db")
    cli("context", "use", "a")
    assert cli("context", "use", "-").out == "no context is used now\n"
    assert "embedded store" in cli("context", "show").out


def test_the_list_marks_the_one_in_use_and_hides_passwords(cli: Cli, tmp_path: Path) -> None:
    cli("context", "set", "a", "--store", "etcds://root:hunter2@a:2379")
    cli("context", "set", "b", "--store", "sqlite:b.db", "--namespace", "storage")
    cli("context", "use", "b")
    result = cli("context")
    assert result.lines[0].split() == ["CURRENT", "NAME", "STORE", "NAMESPACE"]
    assert result.lines[2].split() == ["*", "b", f"sqlite:{tmp_path}/b.db", "storage"]
    assert "hunter2" not in result.out


def test_what_is_not_given_stays(cli: Cli) -> None:
    cli("context", "set", "a", "--store", "etcd://a:1", "--namespace", "one")
    assert cli("context", "set", "a", "--namespace", "two").out == 'context "a" set: etcd://a:1, namespace two\n'


def test_a_saved_file_is_the_same_from_every_directory(cli: Cli, tmp_path: Path) -> None:
    assert cli("context", "set", "a", "--store", "sqlite:a.db").out == f'context "a" set: sqlite:{tmp_path}/a.db\n'


def test_deleting_the_one_in_use_leaves_none_in_use(cli: Cli) -> None:
    cli("context", "set", "a", "--store", "sqlite:a.db")
    cli("context", "use", "a")
    assert cli("context", "delete", "a").code == 0
    assert "embedded store" in cli("context", "show").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("use", "nothing"), 'cannot find the context "nothing"; there are: none is saved'),
        (("delete", "nothing"), 'cannot find the context "nothing"'),
        (("set", "new"), "its store is missing"),
        (("set", "-", "--store", "memory:"), 'cannot name a context "-"'),
    ],
)
def test_mistakes_are_sentences(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    result = cli("context", *arguments)
    assert result.code
    assert sentence in result.err


def test_a_saved_file_that_is_no_list_of_contexts_is_told(cli: Cli, write: Callable[[str, str], Path]) -> None:
    write("home/.config/quartermaster/contexts.yaml", "contexts: 3\n")
    result = cli("context")
    assert result.code == 1
    assert "cannot read the saved contexts" in result.err


def test_a_saved_file_that_is_no_yaml_is_told_without_its_text(cli: Cli, write: Callable[[str, str], Path]) -> None:
    write("home/.config/quartermaster/contexts.yaml", "store: [hunter2\n}")
    result = cli("context")
    assert "it is not YAML" in result.err
    assert "hunter2" not in result.err


def test_the_file_is_for_its_owner_alone(cli: Cli, home: Path) -> None:
    cli("context", "set", "a", "--store", "sqlite:a.db")
    path = home / ".config" / "quartermaster" / "contexts.yaml"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("etcd://root:hunter2@127.0.0.1:1/a?timeout=0.2", True),
        ("etcd://127.0.0.1:1/a@b?timeout=0.2", False),
        ("etcds://root:hunter2@127.0.0.1:1?timeout=0.2", False),
    ],
)
def test_a_password_that_goes_unencrypted_is_told(cli: Cli, url: str, warned: bool) -> None:
    result = cli("--store", url, "get", "sn")
    assert ("warning: the password goes to etcd unencrypted; etcds:// uses TLS" in result.err) is warned
    assert "hunter2" not in result.err


@pytest.mark.parametrize("url", ["foo:bar", "sqlite:", "etcd", "/tmp/store.db"])
def test_a_store_of_no_known_kind_is_not_saved(cli: Cli, url: str) -> None:
    result = cli("context", "set", "bad", "--store", url)
    assert result.code == 2
    assert "its store is of no kind that is known" in result.err
    assert "bad" not in cli("context").out
