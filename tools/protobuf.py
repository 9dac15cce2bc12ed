"""Generates the protobuf messages of the etcd store from its rpc.proto: `python -m tools.protobuf`.

The compiler is pinned to one from before generated code began to check the version of its runtime (5.27): newer
output refuses to run with a runtime of two major versions later or of any version earlier, this one runs on all from
5.27 on. It is installed for this one run, next to nothing else, and is no dependency.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMPILER = "grpcio-tools==1.64.3"
SOURCES = Path(__file__).resolve().parent.parent / "src"
DEFINITION = "quartermaster/stores/kv/etcd/rpc.proto"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch, "bin", "python")
        # The compiler imports pkg_resources, which newer setuptools no longer has.
        subprocess.run([python, "-m", "pip", "install", "--quiet", COMPILER, "setuptools<80"], check=True)
        arguments = [f"-I{SOURCES}", f"--python_out={SOURCES}", f"--pyi_out={SOURCES}", DEFINITION]
        subprocess.run(
            [python, "-m", "grpc_tools.protoc", *arguments], check=True, env=os.environ | {"PYTHONWARNINGS": "ignore"}
        )
    generated = (SOURCES / DEFINITION).with_name("rpc_pb2.py")
    if re.search(r"runtime_version", generated.read_text()):
        sys.exit(f"{generated} checks its runtime's version: use an older compiler than {COMPILER}")
    print(f"generated {generated}")


if __name__ == "__main__":
    main()
