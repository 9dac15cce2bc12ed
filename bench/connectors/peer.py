"""os-brick in an environment of its own: it brings 44 packages, which would be mixed with ours.

Made on first use, outside of the clone, in versions that `os-brick.lock` holds fast.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.running import BenchFailedError, say
from tools.setup import SetupError, cache_directory, find_uv, run

LOCK = Path(__file__).with_name("os-brick.lock")


def pinned(lock: str) -> dict[str, str]:
    """Every package with its version."""
    lines = [line.partition(";")[0].strip() for line in lock.splitlines() if line[:1].isalnum()]
    return {name: version for name, _, version in (line.partition("==") for line in lines)}


def peer_python() -> Path:
    """The interpreter that has os-brick."""
    text = LOCK.read_text()
    name = hashlib.sha256(f"{sys.version_info[:2]} {text}".encode()).hexdigest()[:12]
    home = cache_directory() / f"os-brick-{pinned(text)['os-brick']}-{name}"
    python = home / "bin" / "python"
    if not python.exists():
        _make(home)
    return python


def _make(home: Path) -> None:
    say("installing os-brick and the packages that it needs, once")
    started = time.monotonic()
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        staged = Path(scratch) / "environment"
        python = staged / "bin" / "python"
        try:
            uv = find_uv()
            if uv is not None:
                run([uv, "venv", "--quiet", "--python", sys.executable, staged])
                run([uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "--requirement", LOCK])
            else:
                run([sys.executable, "-m", "venv", staged])
                run([python, "-m", "pip", "install", "--quiet", "--requirement", LOCK])
            run([python, "-c", "import os_brick.initiator.connector"])
        except SetupError as error:
            raise BenchFailedError(f"os-brick cannot be installed: {error}") from error
        try:
            staged.rename(home)
        except OSError:
            # Another run was quicker: its environment is as good as ours.
            shutil.rmtree(staged, ignore_errors=True)
            if not (home / "bin" / "python").exists():
                raise
    say(f"os-brick is there after {time.monotonic() - started:.0f} s")
