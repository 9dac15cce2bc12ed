"""The reference pages have everything that the program has, and say something of each."""

import inspect

import msgspec
import pytest
import yaml

from quartermaster.cli.failures import report
from quartermaster.engine import metrics
from quartermaster.resources import Object, kind_of
from quartermaster.resources.crd import own_kinds
from quartermaster.resources.model import UNKNOWN_KEY
from quartermaster.support import errors
from tools import reference_kinds, reference_tables
from tools.generate import OWNED, ROOT, generated

CRDS = ROOT / "deploy" / "crds"


def page(path: str) -> str:
    return (ROOT / path).read_text()


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a page's tables, by their first cell."""
    lines = [line.strip("|").split(" |") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0].replace("&emsp;", "").split("`")[1]: cells for cells in lines if "`" in cells[0]}


def paths(cls: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """The fields of a struct and of the structs in it, read off the types and not off the schema."""
    found = []
    for field in msgspec.structs.fields(cls):
        path = f"{prefix}{field.encode_name}"
        if path == "metadata" or field.encode_name == UNKNOWN_KEY:
            continue
        found.append(path)
        found += [inner for child, steps in structs_in(field.type) for inner in paths(child, f"{path}{steps}.")]
    return found


def structs_in(annotation: object, steps: str = "") -> list[tuple[type[msgspec.Struct], str]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [(annotation, steps)]
    origin = getattr(annotation, "__origin__", None)
    arguments = getattr(annotation, "__args__", ())
    steps += {tuple: "[]", dict: "{}"}.get(origin, "") if isinstance(origin, type) else ""
    return [found for argument in arguments for found in structs_in(argument, steps)]


@pytest.mark.parametrize("cls", own_kinds(), ids=lambda cls: kind_of(cls).kind)
def test_every_field_of_a_kind_is_there_with_a_sentence(cls: type[Object]) -> None:
    text = page(reference_kinds.PATH)
    section = text.partition(f"\n## {kind_of(cls).kind}\n")[2].partition("\n## ")[0]
    shown = rows(section)
    wanted = paths(cls)
    assert len(wanted) > 5
    assert [path for path in wanted if path not in shown] == []
    assert [path for path, cells in shown.items() if not cells[-1].strip()] == []


def test_a_field_shows_its_default_its_limits_and_whether_it_may_change() -> None:
    text = page(reference_kinds.PATH).partition("\n## StorageNode\n")[2]
    assert "| `spec.glusterfs.zone` | integer | `1` | | The failure zone" in text
    assert "copies of data are put into different ones. (at least 1) |\n" in text
    assert "| `spec.type` | string | | always | The storage system to which the node belongs. (required; one of" in text


@pytest.mark.slow
def test_what_is_immutable_in_a_definition_is_so_on_the_page() -> None:
    for cls in own_kinds():
        crd = yaml.safe_load((CRDS / f"{kind_of(cls).resource}.yaml").read_text())
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
        fixed = [
            f"spec.{name}"
            for name, schema in spec.get("properties", {}).items()
            if any(rule["rule"] == "self == oldSelf" for rule in schema.get("x-kubernetes-validations", ()))
        ]
        marked = {field.path for field in reference_kinds.fields_of(cls) if field.immutable}
        assert [path for path in fixed if path not in marked] == []


def test_every_metric_is_there_with_its_type_and_labels() -> None:
    shown = rows(page(reference_tables.METRICS_PATH))
    declared = [value for _, value in inspect.getmembers(metrics) if isinstance(value, metrics.Metric)]
    assert sorted(metric.name for metric in declared) == sorted(shown)
    for metric in declared:
        cells = shown[metric.name]
        assert cells[1].strip() == metric.type
        assert all(label in cells[2] for label in metric.labels)
        assert cells[3].strip() == metric.help


def test_every_error_is_there_with_its_reason_and_its_meaning() -> None:
    shown = rows(page(reference_tables.ERRORS_PATH))
    declared = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, errors.QuartermasterError)
    ]
    assert [kind.__name__ for kind in declared if kind.__name__ not in shown] == []
    for kind in declared:
        _, reason, _, meaning = (cell.strip() for cell in shown[kind.__name__])
        assert reason == f"`{kind.reason}`"
        assert meaning
        assert not meaning.startswith(("│", "├"))


def test_no_two_errors_of_the_tree_have_the_same_reason() -> None:
    own = [kind for kind, _ in reference_tables.error_tree() if kind.__module__ == errors.__name__]
    assert len({kind.reason for kind in own}) == len(own)


@pytest.mark.parametrize("kind", [errors.UsageError, errors.NotFoundError, errors.InvalidError])
def test_the_exit_code_on_the_page_is_that_of_the_program(
    kind: type[errors.QuartermasterError], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = rows(page(reference_tables.ERRORS_PATH))
    assert shown[kind.__name__][2].strip() == str(report(kind("cannot do it: it is a test")))
    assert "error: cannot do it" in capsys.readouterr().err


def test_every_page_is_generated() -> None:
    pages = sorted(path.relative_to(ROOT).as_posix() for folder in OWNED for path in (ROOT / folder).iterdir())
    assert pages == sorted(generated())
