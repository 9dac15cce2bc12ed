"""Names and labels, as Kubernetes has them."""

import pytest

from quartermaster.resources.names import (
    as_subdomain,
    check_dns_label,
    check_label_value,
    check_qualified_name,
    check_subdomain,
)


@pytest.mark.parametrize("text", ["a", "a-b", "a.b-c.d", "0", "x" * 253])
def test_a_name_of_an_object_is_a_subdomain(text: str) -> None:
    assert check_subdomain(text) == ""


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a b", "a\n", "é", "x" * 254])
def test_what_is_no_subdomain_is_refused(text: str) -> None:
    assert check_subdomain(text).startswith("must be")


def test_a_namespace_has_no_dots() -> None:
    assert check_dns_label("a-b") == ""
    assert check_dns_label("a.b").startswith("must be")
    assert check_dns_label("x" * 64) == "must be at most 63 characters, has 64"


@pytest.mark.parametrize("text", ["a", "A_b.c-D", "example.org/a", "a/B"])
def test_the_key_of_a_label_is_a_name_with_an_optional_domain(text: str) -> None:
    assert check_qualified_name(text) == ""


@pytest.mark.parametrize("text", ["", "/a", "a/", "a/b/c", "a b", "-a", "Example.org/a", "x" * 64])
def test_what_is_no_key_of_a_label_is_refused(text: str) -> None:
    assert check_qualified_name(text).startswith("must have")


def test_the_value_of_a_label_may_be_empty() -> None:
    assert check_label_value("") == ""
    assert check_label_value("a_B.c") == ""
    assert check_label_value("a/b").startswith("must be")


@pytest.mark.parametrize(("text", "mended"), [("Storage_Node 1", "storage-node-1"), ("-a-.b", "a.b"), ("___", "")])
def test_a_bad_name_has_a_good_one_beside_it(text: str, mended: str) -> None:
    assert as_subdomain(text) == mended
