"""Which store a command uses, and why: the first of these that is there.

    --store, QM_STORE, the saved context, the cluster of this Pod, the kubeconfig's current context, the embedded file

Saved contexts stand in `$XDG_CONFIG_HOME/quartermaster/contexts.yaml`, which is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from quartermaster.support.errors import InvalidError, NotFoundError, Problem, UsageError
from quartermaster.support.files import about

PREVIOUS = "-"
SCHEMES = ("memory", "sqlite", "etcd", "etcds", "kubernetes")


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named store."""

    name: str
    store: str
    namespace: str = ""


class Contexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The saved file."""

    current: str = ""
    previous: str = ""  # what `qm context use -` goes back to
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
    from quartermaster.stores.kv.sqlite.files import default_path

    return default_path(environment)


def load_contexts(path: Path) -> Contexts:
    if not path.exists():
        return Contexts()
    import yaml

    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, Contexts)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        # What YAML says shows the text around the mistake, which may hold a password.
        cause = str(error) if isinstance(error, msgspec.ValidationError) else "it is not YAML"
        problem = Problem(str(path), f"is not a list of contexts: {cause}", "mend it, or delete it to start anew")
        raise InvalidError("cannot read the saved contexts", [problem]) from None


def change(path: Path, edit: Callable[[Contexts], Contexts]) -> Contexts:
    """Read, change and write the file; two who do it at once do it one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(path):
        changed = edit(load_contexts(path))
        _save(path, changed)
    return changed


def with_context(saved: Contexts, name: str, store: str | None, namespace: str | None) -> Contexts:
    """With that context as given; what is not given stays."""
    if not name or name == PREVIOUS:
        raise UsageError(f'cannot name a context "{name}"')
    known = {context.name: context for context in saved.contexts}
    before = known.get(name)
    if before is None and not store:
        raise UsageError(f'cannot save the context "{name}": its store is missing', hint="say it with --store URL")
    if store and not _is_known(store):
        raise UsageError(
            f'cannot save the context "{name}": its store is of no kind that is known',
            hint="a store is sqlite:PATH, etcd://HOST:PORT, etcds://HOST:PORT, kubernetes:CONTEXT or memory:",
        )
    known[name] = Context(
        name,
        _independent(store) if store else (before.store if before else ""),
        namespace if namespace is not None else (before.namespace if before else ""),
    )
    return msgspec.structs.replace(saved, contexts=tuple(known.values()))


def with_current(saved: Contexts, name: str) -> Contexts:
    """Using that context; "-" is the one before, or none when there was none."""
    wanted = saved.previous if name == PREVIOUS else saved.find(name).name
    if wanted == saved.current:
        return saved
    return msgspec.structs.replace(saved, current=wanted, previous=saved.current)


def without_context(saved: Contexts, name: str) -> Contexts:
    gone = saved.find(name).name
    return Contexts(
        current="" if saved.current == gone else saved.current,
        previous="" if saved.previous == gone else saved.previous,
        contexts=tuple(context for context in saved.contexts if context.name != gone),
    )


def _is_known(url: str) -> bool:
    scheme, colon, rest = url.partition(":")
    return bool(colon) and scheme in SCHEMES and (scheme != "sqlite" or bool(rest))


def _independent(url: str) -> str:
    """A saved URL means the same from every directory."""
    scheme, _, path = url.partition(":")
    return f"sqlite:{Path(path).expanduser().absolute()}" if scheme == "sqlite" and path else url


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _save(path: Path, contexts: Contexts) -> None:
    import yaml

    # A store's URL may hold a password.
    temporary = path.with_suffix(".new")
    with about(path):
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
    from quartermaster.stores.kubernetes import runs_in_cluster

    if runs_in_cluster(environment):
        return Choice("kubernetes:in-cluster", "this Pod's cluster")
    current = _kubeconfig_context(environment)
    if current:
        return Choice(f"kubernetes:{current}", "the kubeconfig's current context")
    return Choice(f"sqlite:{embedded_path(environment)}", "the embedded store; nothing else is configured")


def _kubeconfig_context(environment: Mapping[str, str]) -> str:
    """The current context, by the rules of the store that would use it; "" where there is no kubeconfig.

    A KUBECONFIG that names no file that is there is an error: who sets it does not mean the embedded file.
    """
    from quartermaster.stores.kubernetes.kubeconfig import kubeconfig_paths, read_kubeconfig

    paths = kubeconfig_paths(environment=environment)
    if not environment.get("KUBECONFIG") and not any(path.exists() for path in paths):
        return ""
    return read_kubeconfig(paths).current_context


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or str(Path.home())
