"""Reading CSPCAuto documents, which are of no known kind, and printing what takes their place."""

from __future__ import annotations

import sys
from typing import IO

import click

from quartermaster.backends.cstor.convert import OLD_KIND, convert
from quartermaster.cli.given import STDIN
from quartermaster.cli.output import json_text, yaml_text
from quartermaster.resources.manifests import read_manifests
from quartermaster.support.errors import UsageError


def convert_file(file: str, output: str) -> None:
    source: str | IO[bytes] = sys.stdin.buffer if file == STDIN else file
    old = [m.document for m in read_manifests([source]) if m.document.get("kind") == OLD_KIND]
    if not old:
        raise UsageError(f"cannot find a {OLD_KIND} in {file}")
    converted = [convert(document) for document in old]
    for one in converted:
        for note in one.notes:
            click.echo(f"note: {one.document['metadata']['name']}: {note}", err=True)
    if output == "json":
        click.echo("\n".join(json_text(one.document) for one in converted))
    else:
        click.echo("---\n".join(yaml_text(one.document) for one in converted), nl=False)
