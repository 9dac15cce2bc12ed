"""`qm cstor serve` and `qm cstor controller` as programs: they start, say where, serve, and end when told to."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quartermaster.resources import CStorClusterConfig, ObjectMeta
from quartermaster.resources.agility import CStorClusterConfigSpec
from quartermaster.stores import open_store
from quartermaster.testing.servers import KubernetesAccess
from tests.hooks.metac_client import post

START_S = 60.0


@asynccontextmanager
async def program(*arguments: str, says: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, re.Match[str]]]:
    """`qm …`, from the moment at which it says that on standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quartermaster", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_S):
            while not (match := re.search(says, line := (await process.stderr.readline()).decode())):
                assert line, "it ended without a word"
        yield process, match
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ended(process: asyncio.subprocess.Process, number: signal.Signals) -> int:
    process.send_signal(number)
    return await asyncio.wait_for(process.wait(), START_S)


async def failing(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quartermaster", *arguments),
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"NO_COLOR": "1"},
    )
    _, said = await asyncio.wait_for(process.communicate(), START_S)
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_says_where_it_is_answers_and_ends_when_told_to(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token")
    arguments = ("cstor", "serve", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    async with program(*arguments, says=r"hooks on (http://127\.0\.0\.1:\d+): cstorclusterconfig, ") as (
        process,
        match,
    ):
        assert (await post(f"{match[1]}/healthz", b"", method="GET")).status == 200
        assert (await post(f"{match[1]}/sync/storage", b"{}")).status == 401
        assert (await post(f"{match[1]}/sync/storage", b"{}", token="secret-token")).status == 422
        assert await ended(process, number) == 0


@pytest.mark.slow
async def test_the_controller_calls_the_service_and_ends_when_told_to(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    store = await open_store(url)
    wrong = CStorClusterConfig(metadata=ObjectMeta(name="wrong", namespace="default"), spec=CStorClusterConfigSpec())
    await store.create(wrong)
    serve = ("cstor", "serve", "--listen", "127.0.0.1:0")
    async with program(*serve, says=r"hooks on (\S+): ") as (_, match):
        arguments = ("cstor", "controller", "--store", url, "--hooks", match[1])
        async with program(*arguments, says="store: sqlite:") as (controller, _):
            async with asyncio.timeout(START_S):
                while not (found := await store.get(CStorClusterConfig, "wrong", "default")).status.message:
                    await asyncio.sleep(0.1)
            assert await ended(controller, signal.SIGTERM) == 0
    await store.close()
    assert "externalProvisioner" in found.status.message


@pytest.mark.slow
@pytest.mark.kubernetes
async def test_the_controller_says_what_it_waits_for(
    kubernetes_server: KubernetesAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubernetes_server.kubeconfig)
    says = 'note: cannot find namespace "not-made"; waiting until it is there'
    async with program("cstor", "controller", "-n", "not-made", "--store", "kubernetes:", says=says) as (process, _):
        assert process.returncode is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--listen", "nowhere"), 'cannot listen on "nowhere"'),
        (("serve", "--listen", "192.0.2.1:1"), "cannot serve hooks on 192.0.2.1:1: Cannot assign requested address;"),
        (("serve", "--max-request-size", "0"), 'cannot use the size "0": no request is so small'),
        (("serve", "--tls-cert", "a.pem"), "only one of --tls-cert and --tls-key"),
        (("serve", "--token-file", "/does/not/exist"), "cannot read /does/not/exist"),
        (("serve", "--max-request-size", "much"), 'cannot use the size "much"'),
        (("controller", "--store", "memory:", "--hooks", "ftp://x"), 'cannot call hooks at "ftp://x"'),
        (("controller", "--store", "memory:", "--ca-file", "x"), "without --hooks URL"),
    ],
)
async def test_what_is_wrong_on_the_command_line_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    code, said = await failing("cstor", *arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said
