"""The contender that is os-brick, told the same in the same way. It runs with an interpreter of its own.

Two kindnesses: commands run as root without the daemon that os-brick starts for them elsewhere, and locks need no
service around them. One thing has no file that could be faked: the identity of ScaleIO's client, an ioctl.
"""

# mypy: ignore-errors

import json
import sys
import threading
import time
from functools import cache

from os_brick import initiator, privileged
from os_brick import setup as set_up
from os_brick.initiator import connector
from os_brick.privileged import scaleio
from oslo_concurrency import lockutils
from oslo_config import cfg

GUID = "6d2a2a5c-0000-0000-0000-000000000001"


def prepare(root):
    lockutils.set_defaults(f"{root}/locks")
    cfg.CONF([], project="bench", default_config_files=[])
    set_up(cfg.CONF)
    for context in (privileged.default, privileged.brick_privsep_hide_output):
        context.set_client_mode(False)
    scaleio.get_guid = lambda _code: GUID


@cache
def connector_for(root, kind, machine):
    """One of each type is enough for a program."""
    options = {"do_local_attach": True} if kind == "rbd" else {}
    if kind == "nfs":
        options["nfs_mount_point_base"] = f"{root}/mounts"
    return connector.InitiatorConnector.factory(
        kind, "", device_scan_attempts=initiator.DEVICE_SCAN_ATTEMPTS_DEFAULT, arch=machine, **options
    )


def make(root, call, known, answers, place):
    time.sleep(call["after_s"])
    key = json.dumps(call["data"], sort_keys=True)
    value, error = "", ""
    began = time.monotonic()
    try:
        found = connector_for(root, call["type"], call["machine"])
        if call["verb"] == "connect":
            known[key] = found.connect_volume(dict(call["data"]))
            value = known[key]["path"]
        else:
            found.disconnect_volume(dict(call["data"]), known.get(key) or {}, force=call["force"])
            value = (known.pop(key, None) or {}).get("path", "")
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    answers[place] = {"value": value, "error": error, "began_s": began, "ended_s": time.monotonic()}


def serve(root):
    prepare(root)
    known = {}
    print("ready", flush=True)
    for line in sys.stdin:
        calls = json.loads(line)
        answers = [None] * len(calls)
        threads = [
            threading.Thread(target=make, args=(root, call, known, answers, place), daemon=True)
            for place, call in enumerate(calls)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
