"""The forms in which objects are printed, and `-o`, which chooses one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from quartermaster.cli.arguments import full_name
from quartermaster.cli.options import FORMS
from quartermaster.resources import Object, kind_of, to_document
from quartermaster.support.errors import UsageError

if TYPE_CHECKING:
    from quartermaster.cli.jsonpath import Template

Document = dict[str, Any]
Form = Literal["", "wide", "yaml", "json", "name", "jsonpath"]


class Output(msgspec.Struct, frozen=True):
    """What `-o` asks for."""

    form: Form = ""
    template: Any = None  # a jsonpath.Template

    @property
    def is_table(self) -> bool:
        return self.form in ("", "wide")


def parse_output(text: str) -> Output:
    form, separator, rest = text.partition("=")
    if form == "jsonpath":
        from quartermaster.cli.jsonpath import parse_template

        if not separator:
            raise UsageError("cannot print by JSON path: it is missing", hint="-o jsonpath='{.metadata.name}'")
        return Output("jsonpath", parse_template(rest))
    for known in ("wide", "yaml", "json", "name"):
        if text == known:
            return Output(known)
    if text:
        raise UsageError(f'cannot print as "{text}"', hint=f"-o takes {', '.join(FORMS)}")
    return Output()


def as_document(obj: Object, *, managed_fields: bool = False) -> Document:
    """The object as it is shown; who owns which field is long and seldom wanted."""
    document = to_document(obj)
    if not managed_fields:
        document["metadata"].pop("managedFields", None)
    return document


def as_list(documents: Sequence[Document]) -> Document:
    return {"apiVersion": "v1", "items": list(documents), "kind": "List", "metadata": {"resourceVersion": ""}}


def format_document(output: Output, document: Document) -> str:
    """A document or a list of them in any form but a table or a name."""
    match output.form:
        case "yaml":
            return yaml_text(document)
        case "json":
            return json_text(document) + "\n"
        case _:
            template: Template = output.template
            return template.render(document)


def names_of(objects: Iterable[Object]) -> str:
    return "".join(full_name(type(obj), obj.metadata.name) + "\n" for obj in objects)


def json_text(document: Any) -> str:
    encoded = msgspec.json.encode(document, order="sorted")
    return msgspec.json.format(encoded, indent=4).decode()


def json_line(document: Any) -> str:
    return msgspec.json.encode(document, order="sorted").decode() + "\n"


def yaml_text(document: Any) -> str:
    """YAML as kubectl writes it: sorted, and texts of several lines as blocks."""
    import yaml

    dumper = _dumper()
    return str(yaml.dump(document, Dumper=dumper, width=1 << 20, allow_unicode=True, default_flow_style=False))


def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
            return True

    def text(dumper: Any, value: str) -> Any:
        block = "\n" in value and all(line == line.rstrip() for line in value.split("\n"))
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if block else None)

    Dumper.add_representer(str, text)
    return Dumper


def nothing_found(kinds: Sequence[type[Object]], namespace: str | None) -> str:
    if namespace is None or not any(kind_of(kind).namespaced for kind in kinds):
        return "No resources found"
    return f"No resources found in {namespace} namespace."
