"""Gives a clone what it needs to run: the virtual environment and the Debian packages.

Every make target calls this first, so the second call must cost next to nothing: each part compares a stamp with
its inputs and returns. It runs before the virtual environment exists and so uses the standard library alone.
"""

import argparse
import contextlib
import hashlib
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

try:
    import tomllib
except ImportError:
    sys.exit("setup: Python 3.11 or newer is needed. Run `make PYTHON=/path/to/python3.11 ...`.")

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "quartermaster-stamp"
LOCK = ROOT / "requirements.lock"
UV_VERSION = "0.13.7"
INSTALL_TIMEOUT_S = 900


class SetupError(Exception):
    """Something is missing that this program cannot put right; the message says what to do."""


def say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


def run(arguments: Sequence[str | Path], **environment: str) -> None:
    """Run a command quietly; its output is shown only if it fails."""
    command = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"cannot run {command[0]}: {error}") from error
    if done.returncode != 0:
        raise SetupError(f"{' '.join(command)} failed with code {done.returncode}:\n{done.stdout.strip()}")


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartermaster"


def find_uv() -> Path | None:
    """uv of this version, installed by pip once per machine; None where that does not work."""
    home = cache_directory() / f"uv-{UV_VERSION}"
    program = home / "bin" / "uv"
    if program.exists():
        return program
    say(f"installing uv {UV_VERSION} into {home}")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        staged = Path(scratch) / "uv"
        try:
            run([sys.executable, "-m", "pip", "install", "--quiet", "--target", staged, f"uv=={UV_VERSION}"])
            run([staged / "bin" / "uv", "--version"])
        except SetupError as error:
            say(f"uv is not available here, plain pip is used instead ({str(error).splitlines()[-1]})")
            return None
        try:
            staged.rename(home)
        except OSError:
            # Another run was quicker: its copy is as good as ours.
            if not program.exists():
                raise
    return program


def read_project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def interpreter() -> str:
    """Of the virtual environment. A distribution builds its Python with profile-guided optimisation; one that was
    compiled on the machine mostly is not, and everything takes a fifth longer with it. `make PYTHON=…` has its way.
    """
    packaged = sorted(Path("/usr/bin").glob("python3.1[1-9]"))
    return sys.executable if os.environ.get("PYTHON") or not packaged else str(packaged[-1])


def wanted_stamp() -> str:
    """Changes when an installation would come out differently; linter settings are not part of it."""
    project = read_project()
    parts = {name: project.get(name) for name in ("build-system", "project", "dependency-groups")}
    text = json.dumps([interpreter(), str(ROOT), parts, LOCK.read_text()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def requirement_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group().lower()) if match else ""


def check_lock() -> None:
    """Fail when a dependency was added to pyproject.toml and the lock was not made again."""
    project = read_project()
    table = project["project"]
    groups = project.get("dependency-groups", {})
    assert isinstance(table, dict)
    assert isinstance(groups, dict)
    lists = [table["dependencies"], *table.get("optional-dependencies", {}).values(), *groups.values()]
    wanted = {requirement_name(item) for items in lists for item in items} - {table["name"]}
    locked = {requirement_name(line) for line in LOCK.read_text().splitlines() if line[:1].isalnum()}
    if missing := sorted(wanted - locked):
        raise SetupError(f"requirements.lock lacks {', '.join(missing)}. Run `make lock` and commit the result.")


def set_up_environment() -> None:
    wanted = wanted_stamp()
    if STAMP.exists() and STAMP.read_text() == wanted and (ENVIRONMENT / "bin" / "python").exists():
        return
    check_lock()
    started = time.monotonic()
    say(f"virtual environment in {ENVIRONMENT.name}")
    STAMP.unlink(missing_ok=True)
    packages = ["--requirement", str(LOCK), "--editable", f"{ROOT}[all]"]
    uv = find_uv()
    if uv is not None:
        if not is_of(interpreter()):
            run([uv, "venv", "--quiet", "--clear", "--python", interpreter(), ENVIRONMENT])
        run(
            [uv, "pip", "install", "--quiet", "--compile-bytecode", *packages],
            VIRTUAL_ENV=str(ENVIRONMENT),
            UV_LINK_MODE=link_mode(uv),
        )
    else:
        run([sys.executable, "-m", "venv", ENVIRONMENT])
        run([ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "--quiet", *packages])
    STAMP.write_text(wanted)
    say(f"virtual environment is ready after {time.monotonic() - started:.1f} s")


def is_of(python: str) -> bool:
    """Whether the virtual environment is there and has that interpreter."""
    program = ENVIRONMENT / "bin" / "python"
    return program.exists() and os.path.samefile(program, python)


def link_mode(uv: Path) -> str:
    """Hard links from the cache are instant, and impossible between file systems."""
    return "hardlink" if uv.stat().st_dev == ROOT.stat().st_dev else "copy"


def make_lock() -> None:
    uv = find_uv()
    if uv is None:
        raise SetupError("`make lock` needs uv; see the message above for why it cannot be installed.")
    say("resolving requirements.lock")
    options = [
        "--quiet",
        "--universal",
        "--upgrade",
        "--no-header",
        "--all-extras",
        "--group",
        "dev",
        "--group",
        "bench",
    ]
    # Where packages come from is the business of the machine, not of the repository.
    options += ["--no-emit-index-url", "--no-emit-find-links", "--no-emit-package", "quartermaster"]
    run([uv, "pip", "compile", "pyproject.toml", *options, "--output-file", LOCK])


def listed_packages() -> list[str]:
    lines = (ROOT / "tools" / "packages.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def missing_packages(names: list[str]) -> list[str]:
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *names]
    shown = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False).stdout
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


@contextlib.contextmanager
def services_stay_down() -> Iterator[None]:
    """The tests start servers of their own: a packaged service must not start and hold the port."""
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            policy.unlink(missing_ok=True)


def set_up_packages() -> None:
    install(listed_packages())


def install(names: list[str]) -> None:
    """Those of them that are missing."""
    if not shutil.which("dpkg-query") or not shutil.which("apt-get"):
        raise SetupError(f"this is not a Debian system. Install the equivalents of: {' '.join(names)}.")
    missing = missing_packages(names)
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        raise SetupError(f"Debian packages are missing. Run as root: {' '.join(command)}")
    started = time.monotonic()
    say(f"installing Debian packages: {' '.join(missing)}")
    run(["apt-get", "update"], DEBIAN_FRONTEND="noninteractive")
    with services_stay_down():
        run(command, DEBIAN_FRONTEND="noninteractive")
    say(f"Debian packages are ready after {time.monotonic() - started:.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="+", choices=["environment", "packages", "lock"])
    parts = {"environment": set_up_environment, "packages": set_up_packages, "lock": make_lock}
    try:
        for part in parser.parse_args().parts:
            parts[part]()
    except SetupError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
