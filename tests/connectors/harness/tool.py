"""What every fake program does: say what it was called with, go wrong if it shall, do its work, answer."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.connectors.harness.world import FAIL_AFTER, FAIL_BEFORE, World

Answer = tuple[int, str, str]  # exit code, standard output, standard error
Tool = Callable[[World, list[str], str], Answer]


def main(directory: str, name: str, function: str) -> None:
    world = World(Path(directory))
    argv = [name, *sys.argv[1:]]
    stdin = sys.stdin.read()
    world.log({"argv": argv, "stdin": stdin})
    module, _, attribute = function.partition(":")
    tool: Tool = getattr(importlib.import_module(module), attribute)
    with world.step(" ".join(argv)) as how:
        if how == FAIL_BEFORE:
            code, out, err = 1, "", f"{name}: injected fault before the effect"
        else:
            code, out, err = tool(world, argv[1:], stdin)
            if how == FAIL_AFTER:
                code, out, err = 1, "", f"{name}: injected fault after the effect"
    with suppress(BrokenPipeError):
        os.write(1, out.encode(errors="surrogateescape"))
        os.write(2, err.encode())
    os._exit(code)
