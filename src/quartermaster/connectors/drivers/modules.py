"""What this host's kernel can do, loaded or not: a program that needs a module loads it itself."""

from __future__ import annotations

from pathlib import Path

from quartermaster.connectors.driver import Roots
from quartermaster.connectors.files import Files


def kernel_has(module: str, sign: Path, roots: Roots, files: Files) -> bool:
    """`sign` is what sysfs shows once it is there."""
    return files.exists(sign) or f"/{module}.ko" in files.text(roots.modules / "modules.dep")
