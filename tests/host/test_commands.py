"""Commands: real processes, their limits and their end."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quartermaster.host.commands import Command, HostCommands, Retry, inside, shown
from quartermaster.host.fake import FakeCommands, Faults, Moment, one_fault_each
from quartermaster.support.backoff import Backoff
from quartermaster.support.errors import (
    CommandDeadlineError,
    CommandError,
    DeadlineError,
    HostError,
    InvalidError,
    ToolMissingError,
)
from tests.host.namespaces import Namespace, fuse_server

commands = HostCommands()


def shell(script: str, **options: object) -> Command:
    return Command(("sh", "-c", script), verb="try a script", **options)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_output_and_exit_code_come_back_apart() -> None:
    result = await commands.run(shell("echo out; echo err >&2; exit 3", accept=(3,)))
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (3, b"out\n", b"err\n", False)


@pytest.mark.slow
async def test_arguments_are_never_read_by_a_shell() -> None:
    result = await commands.run(Command(("echo", "$HOME; rm *", "a  b"), verb="echo"))
    assert result.text == "$HOME; rm *  a  b\n".replace("*  a", "* a")


async def test_a_failure_says_verb_program_code_and_last_words() -> None:
    with pytest.raises(CommandError) as caught:
        await commands.run(shell("seq 9 >&2; echo no medium >&2; exit 7"))
    assert str(caught.value) == "cannot try a script: sh exited with 7: no medium"
    assert caught.value.exit_code == 7
    assert caught.value.stderr == "6\n7\n8\n9\nno medium"


async def test_a_signal_is_a_negative_exit_code() -> None:
    with pytest.raises(CommandError, match="ended by signal 9") as caught:
        await commands.run(shell("kill -9 $$"))
    assert caught.value.exit_code == -9


async def test_a_missing_program_names_its_package() -> None:
    with pytest.raises(ToolMissingError, match=r"mkfs\.xfs is not installed; install the package xfsprogs"):
        await HostCommands(search_path="/nowhere").run(Command(("mkfs.xfs", "/dev/x"), verb="format /dev/x"))


async def test_standard_input_larger_than_a_pipe_arrives_whole() -> None:
    data = os.urandom(300_000)
    result = await commands.run(Command(("cat",), verb="copy", stdin=data))
    assert result.stdout == data


async def test_a_program_may_leave_its_input_unread() -> None:
    result = await commands.run(Command(("true",), verb="do nothing", stdin=b"x" * 300_000))
    assert result.exit_code == 0


async def test_without_input_standard_input_is_empty() -> None:
    assert (await commands.run(Command(("cat",), verb="copy"))).stdout == b""


async def test_the_environment_is_clean_and_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LD_PRELOAD_NOT", "leaks")
    result = await commands.run(Command(("env",), verb="show", environment={"OWN": "1"}))
    names = dict(line.split("=", 1) for line in result.text.splitlines())
    assert set(names) == {"PATH", "LC_ALL", "HOME", "OWN"}
    assert names["LC_ALL"] == "C"


async def test_a_command_runs_in_the_root_directory_and_in_a_session_of_its_own() -> None:
    result = await commands.run(shell("pwd; cut -d' ' -f6 /proc/$$/stat; echo $$"))
    directory, session, pid = result.text.split()
    assert directory == "/"
    assert session == pid


async def test_long_output_is_cut_and_marked_and_the_program_still_ends() -> None:
    result = await commands.run(shell("yes | head -c 3000000; yes err | head -c 3000000 >&2", output_limit=1000))
    assert result.truncated
    assert (len(result.stdout), len(result.stderr)) == (1000, 1000)
    with pytest.raises(HostError, match="longer than its limit"):
        result.json(verb="list disks")


async def test_an_answer_that_is_not_json_is_an_error_of_the_host() -> None:
    result = await commands.run(Command(("echo", "oops"), verb="list"))
    with pytest.raises(HostError, match="cannot list disks: the answer is not JSON"):
        result.json(verb="list disks")


@pytest.mark.slow
async def test_at_the_deadline_the_whole_process_group_is_killed(tmp_path: Path) -> None:
    with pytest.raises(CommandDeadlineError, match=r"sh took longer than 0.3 s") as caught:
        await commands.run(shell(f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout_s=0.3))
    assert isinstance(caught.value, DeadlineError)
    assert not alive(int((tmp_path / "pid").read_text()))


@pytest.mark.slow
async def test_who_ignores_sigterm_gets_sigkill() -> None:
    started = time.monotonic()
    with pytest.raises(CommandDeadlineError):
        await commands.run(shell("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.2, grace_s=0.2))
    assert time.monotonic() - started < 5


async def test_a_cancelled_caller_ends_the_process_group(tmp_path: Path) -> None:
    task = asyncio.ensure_future(commands.run(shell(f"sleep 60 & echo $! > {tmp_path}/pid; wait")))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_program_that_leaves_a_daemon_behind_with_its_pipes_is_not_waited_for(tmp_path: Path) -> None:
    started = time.monotonic()
    result = await commands.run(shell(f"echo ready; setsid sleep 60 & echo $! > {tmp_path}/pid"))
    pid = int((tmp_path / "pid").read_text())
    lives = alive(pid)
    os.kill(pid, signal.SIGKILL)
    assert result.text == "ready\n"
    assert time.monotonic() - started < 5
    assert lives


async def test_exit_codes_that_mean_not_now_are_tried_again(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) -ge 3 ] || exit 16; echo done"
    retry = Retry((16,), attempts=5, backoff=Backoff(first_s=0.01))
    assert (await commands.run(shell(script, retry=retry))).text == "done\n"
    with pytest.raises(CommandError, match="exited with 17"):
        await commands.run(shell("exit 17", retry=retry))


async def test_retries_end_with_their_number_and_with_the_deadline(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/tries; exit 16"
    with pytest.raises(CommandError, match="exited with 16"):
        await commands.run(shell(script, retry=Retry((16,), attempts=3, backoff=Backoff(first_s=0.01))))
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    with pytest.raises(CommandError, match="exited with 16"):
        await commands.run(shell(script, retry=Retry((16,), backoff=Backoff(first_s=60, limit_s=60)), timeout_s=1))
    assert (tmp_path / "tries").read_text() == "x\n" * 4


async def test_a_secret_in_the_argument_list_is_refused_and_one_in_the_output_is_cut_out() -> None:
    with pytest.raises(InvalidError, match="a secret would stand in the argument list"):
        await commands.run(Command(("echo", "--key=canary1"), verb="log in", secrets=("canary1",)))
    script = "read word; echo bad password $word >&2; exit 1"
    with pytest.raises(CommandError) as caught:
        await commands.run(shell(script, stdin=b"canary1\n", secrets=("canary1",)))
    assert "canary1" not in f"{caught.value} {caught.value.stderr} {caught.value.argv}"


def test_arguments_that_look_like_secrets_are_not_shown() -> None:
    argv = ("tool", "--password", "p1", "--token=p2", "nbd://user:p3@host/x", "--size", "5")
    text = " ".join(shown(Command(argv, verb="x")))
    assert not any(secret in text for secret in ("p1", "p2", "p3"))
    assert text.endswith("--size 5")


@pytest.mark.netns
async def test_a_prefix_runs_commands_on_a_virtual_host() -> None:
    keep = ("unshare", "--uts", "--mount", "sh", "-c", "hostname h7; echo; exec cat")
    host = await asyncio.create_subprocess_exec(*keep, stdin=-1, stdout=-1)
    assert host.stdout is not None
    try:
        await host.stdout.readline()
        result = await HostCommands(prefix=inside(host.pid)).run(Command(("hostname",), verb="ask"))
    finally:
        host.kill()
        await host.communicate()
    assert result.text == "h7\n"


@pytest.mark.netns
async def test_who_cannot_be_killed_is_left_behind_and_named_and_reaped_later(
    namespace: Namespace, tmp_path: Path
) -> None:
    with fuse_server(namespace, tmp_path / "silent") as server:
        look = Command(("stat", str(tmp_path / "silent")), verb="look", timeout_s=0.5, grace_s=0.1)
        with pytest.raises(CommandDeadlineError, match="is stuck in the kernel as process") as caught:
            await namespace.commands.run(look)
        pid = caught.value.stuck_pid
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"
        server.die()
        for _ in range(300):
            if not Path(f"/proc/{pid}").exists():
                break
            await asyncio.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists(), "not even a zombie stays"


async def test_the_fake_answers_by_the_longest_beginning_and_records() -> None:
    fake = FakeCommands()
    fake.answer("gluster", stdout="any")
    fake.answer("gluster", "peer", exit_code=1, stderr="no peers")
    assert (await fake.run(Command(("gluster", "pool"), verb="list the pool", changes=False))).text == "any"
    with pytest.raises(CommandError, match="cannot probe h2: gluster exited with 1: no peers"):
        await fake.run(Command(("gluster", "peer", "probe", "h2"), verb="probe h2"))
    with pytest.raises(ToolMissingError):
        await fake.run(Command(("ceph", "-s"), verb="ask for health"))
    assert [command.argv[:2] for command in fake.changing()] == [("gluster", "peer"), ("ceph", "-s")]


async def test_the_fake_fails_at_every_call_before_and_after_its_effect() -> None:
    seen = []
    for faults in one_fault_each(2):
        fake = FakeCommands(faults)
        fake.answer("a")
        fake.answer("b")
        with suppress(HostError):
            for name in ("a", "b"):
                await fake.run(Command((name,), verb=f"run {name}"))
        seen.append([command.argv[0] for command in fake.calls])
    assert seen == [[], ["a"], ["a"], ["a", "b"]]


async def test_a_handler_of_the_fake_may_meet_its_deadline() -> None:
    def hang(command: Command) -> None:
        raise TimeoutError

    fake = FakeCommands(Faults(lambda _number, name: Moment.BEFORE if "b" in name else None))
    fake.handle("a", handler=hang)  # type: ignore[arg-type]
    with pytest.raises(CommandDeadlineError, match="a took longer than 30 s"):
        await fake.run(Command(("a",), verb="run"))


async def test_the_reason_is_what_stands_before_pages_of_usage() -> None:
    script = "echo 'it is too small' >&2; printf 'Usage: tool\\n/* size */ [-s]\\n<size> is a number.\\n' >&2; exit 1"
    with pytest.raises(CommandError, match=r"sh exited with 1: it is too small$") as caught:
        await HostCommands().run(Command(("sh", "-c", script), verb="try"))
    assert caught.value.stderr == "it is too small"


async def test_a_program_that_says_its_usage_first_is_quoted_by_its_last_words() -> None:
    script = "printf 'usage: tool [-s]\\ntool: error: no such option\\n' >&2; exit 2"
    with pytest.raises(CommandError, match=r"sh exited with 2: tool: error: no such option$"):
        await HostCommands().run(Command(("sh", "-c", script), verb="try"))


async def test_a_reason_that_comes_after_the_usage_is_kept(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(
        "#!/bin/sh\nprintf 'warning: old\\nusage: tool [-s]\\n  -s\\ntool: error: it is busy\\n' >&2; exit 2\n"
    )
    tool.chmod(0o755)
    with pytest.raises(CommandError, match=r"tool exited with 2: tool: error: it is busy$") as caught:
        await HostCommands().run(Command((str(tool),), verb="try"))
    assert caught.value.stderr == "warning: old\ntool: error: it is busy"
