"""Makes a fake host the real one for a process, and becomes that process.

Started by `unshare --mount`, so nobody else sees it. os-brick reads /sys and /dev by these very names; here they are
the fake host's, for both libraries alike. Nothing but the standard library: it runs with either's Python.
"""

import os
import subprocess
import sys

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
PLACES = ("etc", "run", "sys", "lib/udev", "dev")


def main(root: str, program: list[str]) -> None:
    for name in DEVICES:
        mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    for place in PLACES:
        mount("--bind", f"{root}/{place}", f"/{place}")
    os.environ["PATH"] = f"{root}/bin:{os.environ['PATH']}"
    os.execv(program[0], program)


def mount(*arguments: str) -> None:
    subprocess.run(["/usr/bin/mount", *arguments], check=True, timeout=30)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
