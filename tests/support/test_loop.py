"""The loop that everything runs on."""

import asyncio
import os
import signal
import sys

import pytest

from quartermaster.support.loop import loop_name, run


async def name() -> str:
    return loop_name()


def test_uvloop_runs_the_work_where_it_is_installed() -> None:
    assert run(name()) == "uvloop"


def test_without_uvloop_it_is_asyncios_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(name()) == "asyncio"


def test_an_interrupt_lets_the_work_clean_up() -> None:
    cleaned: list[bool] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(10)
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        run(work())
    assert cleaned == [True]
