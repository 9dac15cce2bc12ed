"""Kubeconfig files mean what they mean to kubectl, and a mistake in one is a sentence."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from quartermaster.stores.kubernetes.connection import Connection, Material, in_cluster_connection, runs_in_cluster
from quartermaster.stores.kubernetes.kubeconfig import connection_of, kubeconfig_paths, read_kubeconfig
from quartermaster.support.errors import UsageError
from tests.stores.kubernetes.conftest import kubeconfig_content

Settings = dict[str, Any]
SERVER = "https://api.example.com:6443"


def connection(tmp_path: Path, user: Settings, cluster: Settings | None = None, **context: str) -> Connection:
    path = tmp_path / "config"
    path.write_bytes(kubeconfig_content(user, {"server": SERVER, **(cluster or {})}, **context))
    return connection_of(read_kubeconfig([path]), environment={})


def written(path: Path, **content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({name.replace("_", "-"): value for name, value in content.items()}))
    return path


def test_a_context_names_server_user_and_namespace(tmp_path: Path) -> None:
    found = connection(tmp_path, {"token": "secret-token"}, namespace="storage")
    assert (found.name, found.server, found.namespace, found.user.token) == ("test", SERVER, "storage", "secret-token")


def test_without_a_namespace_it_is_default(tmp_path: Path) -> None:
    assert connection(tmp_path, {}).namespace == "default"


def test_relative_paths_are_beside_the_file(tmp_path: Path) -> None:
    found = connection(
        tmp_path,
        {"client-certificate": "pki/me.crt", "client-key": "/etc/me.key", "tokenFile": "token"},
        {"certificate-authority": "pki/ca.crt"},
    )
    assert found.authority == Material(path=str(tmp_path / "pki/ca.crt"))
    assert found.user.certificate == Material(path=str(tmp_path / "pki/me.crt"))
    assert found.user.key == Material(path="/etc/me.key")
    assert found.user.token_file == str(tmp_path / "token")


def test_data_is_base64(tmp_path: Path) -> None:
    found = connection(tmp_path, {}, {"certificate-authority-data": base64.b64encode(b"PEM").decode()})
    assert found.authority == Material(data=b"PEM")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    user = {"token": "very-secret", "password": "very-secret", "username": "x"}
    plugin = {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "args": ["very-secret"]}
    found = connection(tmp_path, {**user, "exec": plugin}, {"proxy-url": "http://u:very-secret@proxy:3128"})
    shown = [repr(found), repr(found.user), repr(found.user.plugin), found.address]
    shown += [repr(part.__rich_repr__()) for part in (found, found.user, found.user.plugin) if part is not None]
    assert "very-secret" not in " ".join(shown)


def test_user_information_in_the_address_is_not_shown(tmp_path: Path) -> None:
    found = connection(tmp_path, {}, {"server": "https://me:very-secret@[2001:db8::1]:6443/k8s/clusters/c1/"})
    assert found.address == "https://[2001:db8::1]:6443/k8s/clusters/c1"


def test_the_first_file_to_name_something_wins(tmp_path: Path) -> None:
    first = written(
        tmp_path / "one" / "config",
        users=[{"name": "me", "user": {"token": "first", "tokenFile": "token"}}],
        contexts=[{"name": "a", "context": {"cluster": "c", "user": "me"}}],
    )
    second = written(
        tmp_path / "two" / "config",
        clusters=[{"name": "c", "cluster": {"server": SERVER}}],
        users=[{"name": "me", "user": {"token": "second"}}],
        current_context="a",
    )
    found = connection_of(read_kubeconfig([first, second]), environment={})
    assert (found.server, found.user.token, found.user.token_file) == (SERVER, "first", str(tmp_path / "one" / "token"))


def test_kubeconfig_names_several_files_and_those_that_are_there_count(tmp_path: Path) -> None:
    there = written(tmp_path / "there", current_context="x")
    environment = {"KUBECONFIG": f"{tmp_path / 'absent'}:{there}::"}
    assert kubeconfig_paths(environment=environment) == (there,)


def test_without_kubeconfig_it_is_the_one_at_home() -> None:
    assert kubeconfig_paths(environment={"HOME": "/home/me"}) == (Path("/home/me/.kube/config"),)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*absent: it is not there.*KUBECONFIG"):
        read_kubeconfig(kubeconfig_paths(tmp_path / "absent"))


def test_a_missing_context_lists_those_that_are_there(tmp_path: Path) -> None:
    contexts: list[Settings] = [{"name": name, "context": {}} for name in ("production", "staging")]
    config = read_kubeconfig([written(tmp_path / "config", contexts=contexts)])
    with pytest.raises(UsageError, match=r'cannot find context "test" in .*config; .*: production, staging'):
        connection_of(config, "test")
    with pytest.raises(UsageError, match=r"has no current-context; .*: production, staging"):
        connection_of(config)


@pytest.mark.parametrize(("missing", "there"), [("cluster", "clusters"), ("user", "users")])
def test_a_context_that_leads_nowhere_says_what_is_missing(tmp_path: Path, missing: str, there: str) -> None:
    content = {
        "clusters": [{"name": "here", "cluster": {"server": SERVER}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "here", "user": "me", missing: "gone"}}],
    }
    path = tmp_path / "config"
    path.write_bytes(msgspec.json.encode(content))
    with pytest.raises(UsageError, match=rf'{missing} "gone" is not in .*config; {there} that are: (here|me)'):
        connection_of(read_kubeconfig([path]), "test")


@pytest.mark.parametrize(
    ("user", "cluster", "complaint"),
    [
        ({}, {"server": "api.example.com"}, "its server is not an http or https URL"),
        ({}, {"certificate-authority-data": "%%%"}, "certificate-authority-data is not base64"),
        ({}, {"certificate-authority": "a", "insecure-skip-tls-verify": True}, "has both"),
        ({}, {"proxy-url": "socks5://proxy:1080"}, 'proxy of type "socks5" is not supported'),
        ({"client-certificate": "a"}, {}, "need each other"),
        ({"auth-provider": {"name": "oidc"}}, {}, 'auth-provider "oidc" is not supported.*1.26'),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, {}, "v1alpha1"),
        ({"token": 7}, {}, r"Expected `str`, got `int` - at `\$.users\[0\].user.token`"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        connection(tmp_path, user, cluster)


def test_broken_yaml_says_the_line_and_shows_no_content(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users:\n- name: me\n  user: {token: very-secret\n")
    with pytest.raises(UsageError, match=r"cannot parse kubeconfig .*config: line \d+: ") as caught:
        read_kubeconfig([path])
    assert "very-secret" not in str(caught.value)


def test_null_is_unset(tmp_path: Path) -> None:
    assert connection(tmp_path, {"token": None, "tokenFile": None}).user.token == ""


def test_impersonation_is_kept(tmp_path: Path) -> None:
    user = {"as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}}
    assert connection(tmp_path, user).user.impersonation == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scope", "x"),
    )


def test_a_plugin_beside_the_file_and_one_on_the_path(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "provideClusterInfo": True}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    found = connection(tmp_path, {"exec": {**plugin, "command": "./login"}}, {"extensions": [extension]})
    assert found.user.plugin is not None
    assert found.user.plugin.command == str(tmp_path / "login")
    assert found.user.plugin.cluster == {"server": SERVER, "config": {"audience": "x"}}
    named = connection(tmp_path, {"exec": {**plugin, "command": "login"}}).user.plugin
    assert named is not None
    assert named.command == "login"


@pytest.mark.parametrize(
    ("server", "excluded", "proxied"),
    [
        (SERVER, "", True),
        (SERVER, "example.com", False),
        (SERVER, ".example.com", False),
        (SERVER, "ample.com", True),
        (SERVER, "*", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://10.1.2.3", "192.168.0.0/16, 10.1.2.4", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
    ],
)
def test_the_proxy_of_the_environment_is_used_where_no_proxy_allows(
    tmp_path: Path, server: str, excluded: str, proxied: bool
) -> None:
    path = tmp_path / "config"
    path.write_bytes(kubeconfig_content({}, {"server": server}))
    environment = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": excluded}
    found = connection_of(read_kubeconfig([path]), environment=environment)
    assert found.proxy == ("http://proxy:3128" if proxied else "")


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    for name, content in {"token": "t", "ca.crt": "c", "namespace": "storage\n"}.items():
        (tmp_path / name).write_text(content)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster_connection(environment, tmp_path)
    assert runs_in_cluster(environment, tmp_path)
    assert (found.name, found.server, found.namespace) == ("in-cluster", "https://[fd00::1]:443", "storage")
    assert found.user.token_file == str(tmp_path / "token")


def test_outside_of_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    assert not runs_in_cluster({}, tmp_path)
    with pytest.raises(UsageError, match="does not run in a pod"):
        in_cluster_connection({}, tmp_path)
    with pytest.raises(UsageError, match=r"token is not there.*automountServiceAccountToken"):
        in_cluster_connection({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
