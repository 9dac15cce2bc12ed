"""Files of a user: all mistakes of all files in one reply, each with file, line and path."""

import io
import time
from pathlib import Path
from typing import Any

import pytest

from quartermaster.resources.manifests import check_manifests, read_manifests
from quartermaster.support.errors import InvalidError, UsageError
from tests.resources.documents import SEED_STORAGE_NODE

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"


def read(text: str | bytes) -> list[Any]:
    data = text.encode() if isinstance(text, str) else text
    return [manifest.document for manifest in read_manifests([io.BytesIO(data)])]


def refusal(text: str | bytes) -> InvalidError:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(InvalidError) as refused:
        check_manifests(read_manifests([io.BytesIO(data)]))
    return refused.value


def mistakes(text: str | bytes) -> list[tuple[int, str, str]]:
    """(line, path, "message (fix)")."""
    return [(p.line, p.path, f"{p.message} ({p.fix})" if p.fix else p.message) for p in refusal(text).problems]


def test_the_example_of_the_design_is_read_and_accepted() -> None:
    (manifest,) = read_manifests([io.BytesIO(SEED_STORAGE_NODE.encode())])
    (document,) = check_manifests([manifest])
    assert document["spec"]["devices"] == ["/dev/vdb", "/dev/vdc", "/dev/vdd"]
    assert manifest.lines.line_of("spec.devices[1]") == 14
    assert manifest.lines.line_of('spec.nodeSelector["kubernetes.io/hostname"]') == 8
    assert manifest.lines.line_of("spec.glusterfs.absent") == 16


def test_many_documents_are_read_and_empty_ones_passed_over() -> None:
    text = f"# first\n---\n---\n{CONFIG_MAP.format(name='a')}---\n# nothing\n---\n{CONFIG_MAP.format(name='b')}...\n"
    assert [document["metadata"]["name"] for document in read(text)] == ["a", "b"]


def test_a_document_marker_inside_a_line_is_text() -> None:
    (document,) = read(CONFIG_MAP.format(name="a") + "data:\n  k: |\n    --- not a marker\n    x\n")
    assert document["data"]["k"] == "--- not a marker\nx\n"


def test_json_is_read_with_tabs_escapes_and_several_documents() -> None:
    one = '{"kind": "ConfigMap",\t"apiVersion": "v1", "metadata": {"name": "\\ud83d\\ude00"}}'
    assert [document["metadata"]["name"] for document in read(one + "\n" + one)] == ["😀", "😀"]


def test_lists_are_what_they_list() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
    typed = "apiVersion: coreos.com/v1\nkind: StorageNodeList\nitems:\n- metadata: {name: b}\n  spec: {type: ceph}\n"
    documents = read(f"{text}---\n{typed}")
    assert [(d["apiVersion"], d["kind"]) for d in documents] == [("v1", "ConfigMap"), ("coreos.com/v1", "StorageNode")]


def test_a_mistake_in_an_element_of_a_list_has_the_line_of_the_file() -> None:
    text = "apiVersion: coreos.com/v1\nkind: StorageNodeList\nitems:\n- metadata: {name: b}\n  spec:\n    typ: ceph\n"
    assert [(line, path) for line, path, _ in mistakes(text)] == [(5, "spec.type"), (6, "spec.typ")]


def test_yaml_values_are_those_of_kubectl() -> None:
    (document,) = read("a: yes\nb: 0x1F\nc: 0o17\nd: 017\ne: 10:20\nf: 2001-01-01\ng: ~\nh: 1_000\ni: 1.5\nj: 'no'\n")
    assert document == {
        "a": True,
        "b": 31,
        "c": "0o17",
        "d": 15,
        "e": "10:20",
        "f": "2001-01-01",
        "g": None,
        "h": 1000,
        "i": 1.5,
        "j": "no",
    }


def test_anchors_aliases_and_merge_keys_work() -> None:
    (document,) = read("base: &base {a: 1, b: 2}\nown:\n  <<: *base\n  b: 3\ncopy: *base\n")
    assert document == {"base": {"a": 1, "b": 2}, "own": {"b": 3, "a": 1}, "copy": {"a": 1, "b": 2}}


def test_all_mistakes_of_a_file_come_in_one_reply_broken_documents_included() -> None:
    text = (
        "apiVersion: coreos.com/v1\nkind: StorageNode\nmetadata:\n  name: a\nspec:\n  type: glusterfs\n"
        "  glusterfs:\n    zone: -1\n---\na: [\n---\nkind: StorageNod\napiVersion: coreos.com/v1\n"
    )
    assert [(line, path) for line, path, _ in mistakes(text)] == [
        (8, "spec.glusterfs.zone"),
        (10, ""),
        (12, "kind"),
        (12, "metadata"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("data:\n  a: b\n  image:foo\n  c: d\n", 3, "put a space after the colon: image: foo"),
        ("spec:\n  type:glusterfs\n  devices:\n  - a\n", 2, "put a space after the colon: type: glusterfs"),
        ("a:\n\t- b\n", 2, "indent with spaces, not with tabs"),
        ("a: b: c\n", 1, "put the value in quotes: a: 'b: c'"),
        ("a: 'x\nb: c\n", 1, "the quote or bracket that begins on line 1 is not closed"),
        ("a: b\nc: [1,\nd: 2\n", 2, "the bracket that begins on line 2 is not closed"),
        ("a: @x\n", 1, "put the value in quotes"),
        ("a:\n  - b\n c: d\n", 3, "look at the indentation"),
        ("a: \x01\n", 1, "is not text that YAML allows"),
    ],
)
def test_broken_yaml_is_explained_with_what_was_probably_meant(text: str, line: int, sentence: str) -> None:
    ((where, _, what),) = mistakes(text)
    assert where == line
    assert sentence in what


def test_colons_without_a_space_that_are_no_yaml_error_are_explained_too() -> None:
    ((line, path, what),) = mistakes(CONFIG_MAP.format(name="a") + "data:\n  image:foo\n  zone:x\n")
    assert (line, path) == (5, "data")
    assert "put a space after the colon: image: foo" in what


def test_a_key_that_is_given_twice_is_a_mistake() -> None:
    in_yaml = CONFIG_MAP.format(name="a") + "data:\n  a: '1'\n  a: '2'\n"
    in_json = (
        '{"apiVersion": "v1",\n"kind": "ConfigMap",\n"metadata":\n{"name": "a"},\n"data": {\n"a": "1",\n"a": "2"}}'
    )
    for text in (in_yaml, in_json):
        assert mistakes(text) == [(7, "data.a", "is given twice, first on line 6 (keep one of them)")]


def test_a_name_that_is_no_text_is_a_mistake() -> None:
    assert mistakes(CONFIG_MAP.format(name="a") + "data:\n  1: x\n  true: y\n") == [
        (6, 'data["1"]', 'the name of a field must be text, is 1 (write "1" in quotes)'),
        (7, "data.true", 'the name of a field must be text, is true (write "true" in quotes)'),
    ]


def test_an_object_that_is_declared_twice_is_a_mistake_that_names_both_places() -> None:
    ((line, path, what),) = mistakes(CONFIG_MAP.format(name="a") + "---\n" + CONFIG_MAP.format(name="a"))
    assert (line, path) == (9, "metadata.name")
    assert what == 'ConfigMap "a" is declared twice (it is declared in <stdin>:1 already)'


def test_the_same_name_in_two_namespaces_is_fine() -> None:
    text = "".join(f"---\n{CONFIG_MAP.format(name='a')}  namespace: {space}\n" for space in ("x", "y"))
    assert len(check_manifests(read_manifests([io.BytesIO(text.encode())]))) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: " + "x" * 50_000_000, "larger than 32 MiB"),
        ("a: " + "x" * 4_000_000, "the document is too large: 3.8 MiB"),
        ("[" * 1_000_000, "nested more than 100 levels deep"),
        ("- " * 30_000 + "a", "nested more than 100 levels deep"),
        ("[" * 900 + "]" * 900, "nested more than 100 levels deep"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
            "aliases repeat too much",
        ),
        ("a: &a [*a]", "stands inside its own anchor"),
        ("a: *b", 'the alias "*b" has no anchor'),
        ("a: !!python/object:os.system x", "is not allowed"),
        ("a: .inf", "is not a value that can be stored"),
        (b"a: \xff", "is not UTF-8 text, first on line 1"),
    ],
    ids=["file", "document", "flow", "block", "json", "laughs", "loop", "dangling", "tag", "infinite", "latin"],
)
def test_what_could_hurt_is_refused_quickly(text: str | bytes, sentence: str) -> None:
    began = time.process_time()
    assert sentence in str(refusal(text))
    assert time.process_time() - began < 2


def test_directories_are_read_in_order_of_name_and_problems_name_their_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.yaml").write_text(CONFIG_MAP.format(name="b"))
    (tmp_path / "a.yml").write_text(CONFIG_MAP.format(name="a"))
    (tmp_path / "sub" / "c.json").write_text('{"apiVersion": "v1", "kind": "ConfigMap",\n "metadata": {"name": "C"}}')
    (tmp_path / "notes.txt").write_text("not a manifest")
    manifests = read_manifests([tmp_path])
    assert [Path(manifest.source).name for manifest in manifests] == ["a.yml", "b.yaml", "c.json"]
    with pytest.raises(InvalidError) as refused:
        check_manifests(manifests)
    (problem,) = refused.value.problems
    assert str(problem).startswith(f"{tmp_path}/sub/c.json:2: metadata.name: must be lower-case")


def test_a_file_that_is_not_there_and_a_directory_without_manifests_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file or directory"):
        read_manifests([tmp_path / "absent.yaml"])
    with pytest.raises(UsageError, match="cannot find a manifest"):
        read_manifests([tmp_path])


def test_broken_json_is_said_to_be_broken_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"kind": "ConfigMap",\n  "metadata": }')
    with pytest.raises(InvalidError, match=r"a.json:2: is not JSON, column 15"):
        read_manifests([tmp_path / "a.json"])
