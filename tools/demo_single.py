"""The demo without root: one host, nothing installed, from nothing to a volume and back."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tools.demo_tour import EXAMPLES, DemoFailedError, Tour, ignore_interrupts

CLAIM = EXAMPLES / "04-a-volume" / "claim.yaml"


async def one_host(tour: Tour) -> None:
    tour.say(
        "One host: no server, no root, no disk of its own. One process leads, is the agent, and offers a directory."
    )
    try:
        async with tour.timed("one host: from nothing to a cluster"):
            await tour.here("up", "--single", "--name", "box")
            await tour.here("status", "--wait")
        async with tour.timed("a claim, its volume, a file in it"):
            await tour.here("apply", "-f", CLAIM)
            path = Path((await tour.here("volume", "mount", "data", tour.directory / "data")).splitlines()[-1])
            content = b"what somebody wrote\n" * 1000
            (path / "file").write_bytes(content)
        await tour.here("volume", "list")
        tour.say("The process is stopped and started again; what was written is where it was.")
        async with tour.timed("stopped, and started again"):
            await tour.here("down")
            await tour.here("up", "--single")
            again = Path((await tour.here("volume", "mount", "data", tour.directory / "data")).splitlines()[-1])
        same = sha256((again / "file").read_bytes()).digest() == sha256(content).digest()
        tour.check(same, "the file is the same")
        await tour.here("volume", "unmount", "data")
        await tour.here("delete", "pvc", "data")
        tour.check(not path.exists(), "the claim is gone, and its volume with it")
    finally:
        ignore_interrupts()
        with suppress(DemoFailedError, TimeoutError):
            await tour.here("down")
