"""Which store a command uses, and why: the first of these that is there.

    --store, QM_STORE, the saved context, the cluster this Pod runs in, the kubeconfig's current context, the embedded file

Saved contexts stand in `$XDG_CONFIG_HOME/quartermaster/contexts.yaml`, which is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from quartermaster.support.errors import InvalidError, NotFoundError, Problem

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named store."""

    name: str
    store: str
    namespace: str = ""


class Contexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The saved file."""

    current: str = ""
    contexts: tuple[Context, ...] = ()

    def find(self, name: str) -> Context:
        for context in self.contexts:
            if context.name == name:
                return context
        known = ", ".join(c.name for c in self.contexts) or "none is saved"
        raise NotFoundError(f'cannot find the context "{name}"', hint=f"there are: {known}")


class Choice(msgspec.Struct, frozen=True):
    """The store that a command uses and what made it so."""

    store: str
    because: str
    namespace: str = ""


def contexts_path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or f"{_home(environment)}/.config"
    return Path(base) / "quartermaster" / "contexts.yaml"


def embedded_path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or f"{_home(environment)}/.local/share"
    return Path(base) / "quartermaster" / "store.db"


def load_contexts(path: Path) -> Contexts:
    if not path.exists():
        return Contexts()
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, Contexts)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        problem = Problem(str(path), f"is not a list of contexts: {error}", "mend it, or delete it to start anew")
        raise InvalidError("cannot read the saved contexts", [problem]) from error


def save_contexts(path: Path, contexts: Contexts) -> None:
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A store's URL may hold a password.
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(msgspec.to_builtins(contexts), file, sort_keys=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def choose(option: str, environment: Mapping[str, str]) -> Choice:
    """The store to use. Nothing is opened here, and no file but the saved contexts and the kubeconfig is read."""
    if option:
        return Choice(option, "--store")
    if environment.get("QM_STORE"):
        return Choice(environment["QM_STORE"], "QM_STORE")
    saved = load_contexts(contexts_path(environment))
    if saved.current:
        context = saved.find(saved.current)
        return Choice(context.store, f"context {context.name}", context.namespace)
    if environment.get("KUBERNETES_SERVICE_HOST") and SERVICE_ACCOUNT_TOKEN.exists():
        return Choice("kubernetes:in-cluster", "this Pod's cluster")
    current = _kubeconfig_context(environment)
    if current:
        return Choice(f"kubernetes:{current}", "the kubeconfig's current context")
    return Choice(f"sqlite:{embedded_path(environment)}", "the embedded store; nothing else is configured")


def _kubeconfig_context(environment: Mapping[str, str]) -> str:
    """The first current-context among the kubeconfig's files, as kubectl merges them."""
    import yaml

    listed = environment.get("KUBECONFIG") or f"{_home(environment)}/.kube/config"
    for name in listed.split(os.pathsep):
        path = Path(name)
        if not name or not path.is_file():
            continue
        try:
            content = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        except (yaml.YAMLError, OSError) as error:
            problem = Problem(str(path), f"cannot be read: {error}", "mend it, or name a store with --store")
            raise InvalidError("cannot read the kubeconfig", [problem]) from error
        if isinstance(content, dict) and content.get("current-context"):
            return str(content["current-context"])
    return ""


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or str(Path.home())
