"""`qm crd`: the CustomResourceDefinitions of our kinds, to print or to install."""

from __future__ import annotations

from typing import cast

import click

from quartermaster.cli.completing import complete_kinds
from quartermaster.cli.options import store_options
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm crd | kubectl apply --server-side -f -    all of them
  qm crd storagenodes                          one of them
  qm crd install                               create what is missing on the cluster
  qm crd install --upgrade                     and replace what differs
"""
INSTALL = "install"


@click.command(short_help="Print or install the CustomResourceDefinitions.", epilog=EPILOG)
@click.argument("words", metavar="[install | TYPE...]", nargs=-1, shell_complete=complete_kinds)
@click.option("--upgrade", is_flag=True, help="With `install`: replace definitions that differ from ours.")
@store_options
def command(session: Session, *, words: tuple[str, ...], upgrade: bool) -> None:
    """Print or install the CustomResourceDefinitions.

    Without arguments all of them are printed as YAML. `install` creates those that the cluster does not have and waits
    until it serves them. One that is there and differs may belong to a newer version: it is named and kept, unless
    `--upgrade` replaces it. Our own stores need no definitions.
    """
    if INSTALL in words:
        if len(words) > 1:
            raise click.UsageError("`install` takes no kinds: it installs what is missing")
        session.run(lambda: _install(session, upgrade=upgrade))
        return
    if upgrade:
        raise click.UsageError("`--upgrade` goes with `install`")
    from quartermaster.cli.output import yaml_text
    from quartermaster.resources import find, kind_of
    from quartermaster.resources.crd import crd_of, own_kinds
    from quartermaster.support.errors import UsageError

    kinds = [find(word) for word in words] or list(own_kinds())
    for kind in kinds:
        if not kind_of(kind).own:
            raise UsageError(
                f"cannot print a definition of {kind_of(kind).resource}: it is a kind of Kubernetes itself"
            )
    click.echo("---\n".join(yaml_text(crd_of(kind)) for kind in kinds), nl=False)


async def _install(session: Session, *, upgrade: bool) -> None:
    async with session.store() as store:
        if store.fences:
            click.echo(f"store: {store.url} needs no definitions: it knows the kinds by itself", err=True)
            return
        from quartermaster.stores.kubernetes import KubernetesStore
        from quartermaster.stores.kubernetes.definitions import ensure_crds

        session.name_store(store)
        verdicts = await ensure_crds(cast(KubernetesStore, store), upgrade=upgrade)
        for name, verdict in verdicts.items():
            said = "differs, kept" if verdict == "differs" else verdict
            click.echo(f"customresourcedefinition.apiextensions.k8s.io/{name} {said}")
        if "differs" in verdicts.values():
            click.echo("note: `qm crd install --upgrade` replaces those that differ", err=True)
