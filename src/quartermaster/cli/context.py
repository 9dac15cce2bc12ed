"""`qm context`: stores with a name, and which of them is used."""

from __future__ import annotations

import os

import click

from quartermaster.cli.completing import complete_contexts
from quartermaster.cli.session import Session

EPILOG = """\b
Examples:
  qm context                                         the saved ones
  qm context set lab --store etcd://10.0.0.1:2379    save one, or change it
  qm context use lab                                 use it from now on
  qm context use -                                   go back to what was used before
  qm context show                                    which store is used now, and why
  qm context delete lab
"""


@click.group(
    short_help="Name stores, and choose the one that is used.",
    epilog=EPILOG,
    invoke_without_command=True,
)
@click.pass_context
def command(context: click.Context) -> None:
    """Name stores, and choose the one that is used.

    Without a subcommand it lists the saved contexts. They stand in ~/.config/quartermaster/contexts.yaml
    (XDG_CONFIG_HOME).
    """
    if context.invoked_subcommand is None:
        _list()


@command.command("list", short_help="List the saved contexts.", epilog="\b\nExamples:\n  qm context list\n")
def list_contexts() -> None:
    """List the saved contexts."""
    _list()


@command.command("show", short_help="Show which store is used, and why.", epilog="\b\nExamples:\n  qm context show\n")
@click.pass_obj
def show(session: Session) -> None:
    """Show which store is used, and why. Nothing is opened."""
    from quartermaster.resources.names import DEFAULT_NAMESPACE
    from quartermaster.support.redaction import redact

    choice = session.choice
    click.echo(f"store:      {redact(choice.store)}")
    click.echo(f"because of: {choice.because}")
    namespace = session.given_namespace or choice.namespace
    if namespace or not choice.store.startswith("kubernetes:"):
        click.echo(f"namespace:  {namespace or DEFAULT_NAMESPACE}")


@command.command(
    "set",
    short_help="Save a context, or change it.",
    epilog="\b\nExamples:\n  qm context set lab --store etcd://10.0.0.1:2379 --namespace storage\n",
)
@click.argument("name", shell_complete=complete_contexts)
@click.option("--store", metavar="URL", help="The store; needed for a new context.")
@click.option("--namespace", metavar="NAME", help="The namespace that is used when none is given.")
@click.pass_obj
def set_context(session: Session, name: str, store: str | None, namespace: str | None) -> None:
    """Save a context, or change it. It is not used before `qm context use`."""
    from quartermaster.cli import contexts
    from quartermaster.cli.session import checked_namespace
    from quartermaster.support.redaction import redact

    store = store or session.given_store
    checked_namespace(namespace or "")
    changed = contexts.change(
        contexts.contexts_path(os.environ), lambda saved: contexts.with_context(saved, name, store, namespace)
    )
    saved = changed.find(name)
    click.echo(
        f'context "{name}" set: {redact(saved.store)}' + (f", namespace {saved.namespace}" * bool(saved.namespace))
    )


@command.command(
    "use",
    short_help="Use a context from now on.",
    epilog="\b\nExamples:\n  qm context use lab\n  qm context use -      back to what was used before\n",
)
@click.argument("name", shell_complete=complete_contexts)
def use(name: str) -> None:
    """Use a context from now on; `-` goes back to what was used before."""
    from quartermaster.cli import contexts

    changed = contexts.change(contexts.contexts_path(os.environ), lambda saved: contexts.with_current(saved, name))
    click.echo(f'context "{changed.current}" is used now' if changed.current else "no context is used now")


@command.command("delete", short_help="Forget a context.", epilog="\b\nExamples:\n  qm context delete lab\n")
@click.argument("name", shell_complete=complete_contexts)
def delete(name: str) -> None:
    """Forget a context. The store itself stays as it is."""
    from quartermaster.cli import contexts

    contexts.change(contexts.contexts_path(os.environ), lambda saved: contexts.without_context(saved, name))
    click.echo(f'context "{name}" deleted')


def _list() -> None:
    from quartermaster.cli.contexts import contexts_path, load_contexts
    from quartermaster.cli.tables import Writer
    from quartermaster.support.redaction import redact

    saved = load_contexts(contexts_path(os.environ))
    if not saved.contexts:
        click.echo("No contexts are saved; `qm context set NAME --store URL` saves one.", err=True)
        return
    rows = [["*" if c.name == saved.current else "", c.name, redact(c.store), c.namespace] for c in saved.contexts]
    click.echo(Writer(["CURRENT", "NAME", "STORE", "NAMESPACE"]).format(rows), nl=False)
