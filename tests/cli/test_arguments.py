"""Which objects are meant."""

import pytest

from quartermaster.cli.arguments import Target, full_name, parse_targets
from quartermaster.resources import ConfigMap, StorageNode, StorageStatus, kind_of
from quartermaster.support.errors import UsageError


@pytest.mark.parametrize("word", ["storagenode", "storagenodes", "sn", "StorageNode", "storagenodes.coreos.com"])
def test_a_kind_goes_by_several_words(word: str) -> None:
    assert parse_targets([word]).items == (Target(StorageNode),)


def test_names_follow_the_kind() -> None:
    assert parse_targets(["sn", "a", "b"]).items == (Target(StorageNode, ("a", "b")),)


def test_kind_and_name_may_be_one_word() -> None:
    assert parse_targets(["sn/a", "cm/b", "sn/c"]).items == (Target(StorageNode, ("a", "c")), Target(ConfigMap, ("b",)))


def test_several_kinds_are_listed_with_commas() -> None:
    assert parse_targets(["sn,ss,sn"]).items == (Target(StorageNode), Target(StorageStatus))


def test_all_is_every_kind_of_ours() -> None:
    targets = parse_targets(["all"])
    assert targets.category
    assert {kind_of(target.kind).own for target in targets.items} == {True}


def test_a_category_is_its_kinds_as_kubectl_has_it() -> None:
    assert StorageStatus in [target.kind for target in parse_targets(["storage"]).items]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "cannot tell which objects are meant"),
        (["storagenod"], 'did you mean "storagenode"'),
        (["sn/a", "b"], 'cannot tell which object "b" is'),
        (["sn/"], 'cannot tell which object "sn/" is'),
        ([","], "cannot find a kind"),
    ],
)
def test_what_cannot_be_understood_is_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_targets(words)


def test_an_object_is_named_as_kubectl_names_it() -> None:
    assert full_name(StorageNode, "a") == "storagenode.coreos.com/a"
    assert full_name(ConfigMap, "a") == "configmap/a"
