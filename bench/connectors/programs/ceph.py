"""rbd, as both libraries call it."""

from __future__ import annotations

import json

from bench.connectors.kernel import Kernel
from bench.connectors.programs.answer import Answer, failed, said
from quartermaster.testing.arguments import option


def rbd(kernel: Kernel, arguments: list[str], _stdin: str) -> Answer:
    words = arguments[1:] if arguments[0] == "device" else arguments
    if words[0] == "map":
        image = option(words, "--image") or words[1]
        monitors = option(words, "--mon_host")
        return said(kernel.images.map(option(words, "--pool"), image, monitors, option(words, "--id")) + "\n")
    if words[0] in ("showmapped", "list"):
        return said(json.dumps(kernel.images.all()))
    device = next(word for word in words if word.startswith("/dev/"))
    return Answer() if kernel.images.unmap(device) else failed(22, f"rbd: {device} is not mapped")
