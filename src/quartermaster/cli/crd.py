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
"""
INSTALL = "install"


@click.command(short_help="Print or install the CustomResourceDefinitions.", epilog=EPILOG)
@click.argument("words", metavar="[install | TYPE...]", nargs=-1, shell_complete=complete_kinds)
@store_options
def command(session: Session, *, words: tuple[str, ...]) -> None:
    """Print or install the CustomResourceDefinitions.

    Without arguments all of them are printed as YAML. `install` creates those that the cluster does not have and waits
    until it serves them; definitions that are there stay as they are. Our own stores need none.
    """
    if INSTALL in words:
        if len(words) > 1:
            raise click.UsageError("`install` takes no kinds: it installs what is missing")
        session.run(lambda: _install(session))
        return
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


async def _install(session: Session) -> None:
    async with session.store() as store:
        if store.fences:
            click.echo(f"store: {store.url} needs no definitions: it knows the kinds by itself", err=True)
            return
        from quartermaster.resources import kind_of
        from quartermaster.resources.crd import own_kinds
        from quartermaster.stores.kubernetes import KubernetesStore
        from quartermaster.stores.kubernetes.definitions import ensure_crds

        session.name_store(store)
        created = await ensure_crds(cast(KubernetesStore, store))
        for kind in own_kinds():
            name = kind_of(kind).resource
            verdict = "created" if name in created else "unchanged"
            click.echo(f"customresourcedefinition.apiextensions.k8s.io/{name} {verdict}")
