"""`qm explain` and `qm crd`: the kinds as the types declare them."""

import pytest
import yaml

from quartermaster.resources import all_kinds, kind_of
from quartermaster.resources.crd import own_kinds
from tests.cli.conftest import ROOT, Cli


def test_without_arguments_it_lists_the_kinds(cli: Cli) -> None:
    lines = cli("explain").lines
    assert lines[0].split() == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert len(lines) == len(all_kinds()) + 1


def test_a_kind_has_its_fields_with_types_and_sentences(cli: Cli) -> None:
    shown = cli("explain", "storagenode").out
    assert shown.startswith("GROUP:      coreos.com\nKIND:       StorageNode\nVERSION:    v1\n\nDESCRIPTION:\n")
    assert "  spec\t<Object> -required-\n    What the node is to be.\n" in shown


def test_a_field_is_found_by_its_path(cli: Cli) -> None:
    shown = cli("explain", "sn.spec.glusterfs.zone").out
    assert "FIELD: zone <integer>, default 1\n" in shown
    assert "at least: 1" in shown
    assert "FIELD: devices <[]string>" in cli("explain", "storagenodes.coreos.com.spec.devices").out
    assert "FIELD: labels <map[string]string>" in cli("explain", "sn.metadata.labels").out


def test_recursive_shows_all_fields_as_a_tree(cli: Cli) -> None:
    assert "    glusterfs\t<Object>\n      cluster\t<string>\n" in cli("explain", "sn", "--recursive").out


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind_of(cls).resource for cls in all_kinds()])
def test_every_kind_can_be_explained(cli: Cli, kind: str) -> None:
    assert cli("explain", kind, "--recursive").code == 0


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("storagenod", 'did you mean "storagenode"?'),
        ("sn.spec.devicez", 'cannot find the field "devicez" in storagenode.spec; did you mean "devices"?'),
        ("sn.spec.type.x", "it has no fields"),
    ],
)
def test_what_is_not_there_is_a_sentence(cli: Cli, path: str, sentence: str) -> None:
    result = cli("explain", path)
    assert result.code == 2
    assert sentence in result.err


@pytest.mark.slow
def test_all_definitions_are_printed_as_they_are_checked_in(cli: Cli) -> None:
    printed = {crd["metadata"]["name"]: crd for crd in yaml.safe_load_all(cli("crd").out)}
    assert list(printed) == [kind_of(cls).resource for cls in own_kinds()]
    for name, crd in printed.items():
        assert crd == yaml.safe_load((ROOT / "deploy" / "crds" / f"{name}.yaml").read_text())


@pytest.mark.slow
def test_one_definition_is_printed_on_request(cli: Cli) -> None:
    assert yaml.safe_load(cli("crd", "storagenodes").out)["metadata"]["name"] == "storagenodes.coreos.com"
    assert "it is a kind of Kubernetes itself" in cli("crd", "pods").err


def test_our_own_stores_need_no_definitions(cli: Cli) -> None:
    result = cli("crd", "install")
    assert result.code == 0
    assert "needs no definitions" in result.err
    assert cli("crd", "install", "sn").code == 2
