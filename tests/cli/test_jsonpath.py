"""Templates as kubectl has them."""

import pytest

from quartermaster.cli.jsonpath import parse_path, parse_template
from quartermaster.support.errors import UsageError

DOCUMENT = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "one"}},
            "spec": {"devices": ["/dev/vdb", "/dev/vdc", "/dev/vdd"], "zone": 1},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Full", "status": "False"}]},
        },
        {"metadata": {"name": "b"}, "spec": {"devices": ["/dev/sda"], "zone": 2, "spare": True}},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "List"),
        ("{$.kind}", "List"),
        ("kind is {.kind}!", "kind is List!"),
        ("{.items[*].metadata.name}", "a b"),
        ("{.items[0].metadata.name}", "a"),
        ("{.items[-1].metadata.name}", "b"),
        ("{.items[5].metadata.name}", ""),
        ("{.items[0].spec.devices[0:2]}", "/dev/vdb /dev/vdc"),
        ("{.items[0].spec.devices[1:]}", "/dev/vdc /dev/vdd"),
        ("{.items[0].spec.devices[::2]}", "/dev/vdb /dev/vdd"),
        ("{.items[0].spec.devices}", '["/dev/vdb","/dev/vdc","/dev/vdd"]'),
        ("{.items[0].spec.zone}", "1"),
        ("{.items[1].spec.spare}", "true"),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "one"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "one"),
        ("{.items[*].spec['spare', 'zone']}", "1 true 2"),
        ('{range .items[*]}{.metadata.name}{"\\n"}{end}', "a\nb\n"),
        (
            "{range .items[*]}{.metadata.name}: {range .spec.devices[*]}{@} {end}; {end}",
            "a: /dev/vdb /dev/vdc /dev/vdd ; b: /dev/sda ; ",
        ),
        ("{range .items[*]}{.metadata.name}{'\\t'}{$.kind}{end}", "a\tListb\tList"),
        ('{.items[0].status.conditions[?(@.type=="Ready")].status}', "True"),
        ("{.items[0].status.conditions[?(@.type!='Ready')].type}", "Full"),
        ("{.items[?(@.spec.zone>1)].metadata.name}", "b"),
        ("{.items[?(@.spec.spare)].metadata.name}", "b"),
        ("{.items[?(@.spec.spare==true)].metadata.name}", "b"),
        ("{..name}", "a b"),
        ("{.missing.altogether}", ""),
        ('{.kind}{" and "}{.items[0].kind}', "List and "),
        ("{.kind .items[0].metadata.name}", "Lista"),
        (".kind", "List"),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, text: str) -> None:
    assert parse_template(template).render(DOCUMENT) == text


@pytest.mark.parametrize(
    "template",
    [
        "{.a",
        "{.a[}",
        "{.a[?(@.b==)]}",
        "{range .a}",
        "{end}",
        '{"open}',
        "{.a[x]}",
        "{=}",
        "{.a[?(@.b=='c']}",
        "{..}",
        "{.a['b',]}",
    ],
)
def test_a_template_that_cannot_be_read_is_refused_with_the_place(template: str) -> None:
    with pytest.raises(UsageError, match="cannot read the JSON path"):
        parse_template(template)


@pytest.mark.parametrize("text", [".metadata.name", "{.metadata.name}", "metadata.name", "$.metadata.name"])
def test_a_path_alone_may_be_written_in_any_way(text: str) -> None:
    assert parse_path(text).find({"metadata": {"name": "a"}}) == ["a"]
