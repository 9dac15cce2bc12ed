"""The root of `qm`: the list of commands, without importing any of them.

`qm --help` must be quick, so the one-line helps stand here, and a test compares them with the commands' own.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import click

from quartermaster import __version__

COMMANDS: dict[str, str] = {
    "up": "Bring up Quartermaster on this host.",
    "down": "Stop what runs on this host; the data stay.",
    "join": "Make this host one of a cluster.",
    "leave": "Take this host out of its cluster.",
    "token": "Make, list and revoke tokens with which hosts join.",
    "agent": "Run the agent of this host.",
    "operator": "Run the operator, which leads or waits to lead.",
    "apply": "Create or change objects from files.",
    "get": "Show objects as a table, YAML, JSON or by JSON path.",
    "describe": "Show one object in full, with its conditions and Events.",
    "watch": "Show changes as they happen.",
    "delete": "Delete objects, by name or by file.",
    "edit": "Change an object in your editor.",
    "diff": "Show what an apply would change.",
    "explain": "Explain a kind and its fields.",
    "crd": "Print or install the CustomResourceDefinitions.",
    "status": "Show how the storage clusters are, until they are ONLINE.",
    "adopt": "Write down a storage cluster that runs and is in no store.",
    "plan": "Show what the leader would do, and why.",
    "pause": "Stop all action on storage clusters.",
    "resume": "Let paused storage clusters go on.",
    "approve": "Approve steps that destroy something.",
    "node": "Take storage nodes out of service, or out of the cluster.",
    "volume": "List volumes, and mount them on this host.",
    "connector": "Attach volumes of any storage system to this host.",
    "devices": "Show the disks of hosts, and why one cannot be used.",
    "doctor": "Look for what is wrong with this host.",
    "lab": "Run virtual hosts on this machine.",
    "store": "Back up, restore or move all objects of a store.",
    "cstor": "Run and check cStor clusters of OpenEBS.",
    "context": "Name stores, and choose the one that is used.",
    "version": "Show the version of this program and of the store.",
    "completion": "Print the shell completion for bash, zsh or fish.",
}
COMPLETE_VARIABLE = "_QM_COMPLETE"

EPILOG = """\b
Which store is used, the first of these that is there:
  --store, QM_STORE, the saved context (`qm context`), the cluster of this Pod,
  the kubeconfig's current context, the embedded file

`qm context show` tells which and why; commands that write name it on standard error.
`qm COMMAND --help` shows options and examples.
"""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used. A group below it has a table of its own."""

    table: ClassVar[dict[str, str]] = COMMANDS
    modules: ClassVar[str] = "quartermaster.cli."

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in self.table:
            return None
        command: click.Command = importlib.import_module(f"{self.modules}{cmd_name}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(self.table.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.table and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], self.table, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "; `qm --help` lists the commands"
            ctx.fail(f'there is no command "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end with code 1, although who reads only the first lines does nothing wrong.
            from quartermaster.cli.failures import report

            return report(error)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in self.table.items() if name.startswith(incomplete)]
        # Past the group's own completion of commands, which imports every one of them.
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EPILOG,
)
@click.option("--store", metavar="URL", help="sqlite:PATH, etcd://HOST:PORT,…, kubernetes:CONTEXT or memory:")
@click.option("-n", "--namespace", metavar="NAME", help='Namespace; the context\'s own, else "default".')
@click.option("-v", "--verbose", count=True, help="More on standard error; twice for all of it.")
@click.version_option(__version__, message="quartermaster %(version)s", help="Show the version of this program.")
@click.pass_context
def root(context: click.Context, store: str | None, namespace: str | None, verbose: int) -> None:
    """Quartermaster turns raw disks on many machines into volumes that applications mount.

    \b
      qm apply -f nodes.yaml          declare storage nodes
      qm get storagenodes -o wide     see them
      qm describe storagestatus NAME  see how the cluster is, and why
    """
    from quartermaster.cli.failures import colour
    from quartermaster.cli.session import Session

    context.color = colour()
    context.obj = Session(store_url=store or "", namespace=namespace or "", verbosity=verbose)


def run(arguments: Sequence[str] | None = None) -> int:
    """As `main`, in a process that goes on: signals mean to it what they meant before."""
    try:
        return _run(arguments)
    finally:
        ending = sys.modules.get("quartermaster.cli.ending")
        if ending is not None:
            ending.restore()


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command line and return its exit code. Whatever goes wrong ends as one sentence, not as a traceback."""
    try:
        code = root.main(
            None if arguments is None else list(arguments),
            prog_name="qm",
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except (Exception, KeyboardInterrupt) as error:
        from quartermaster.cli.failures import report

        return report(error)
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point."""
    # gRPC's fork handlers print warnings and cost start-up time, and nothing here forks without exec.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    sys.exit(_run(None))
