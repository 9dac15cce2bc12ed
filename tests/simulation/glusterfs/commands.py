"""The door through which agents start programs, on a modelled host: its only program is `gluster`.

What a command began goes on when whoever started it is cancelled or killed: it is glusterd's work by then.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from quartermaster.backends.glusterfs.fake_answers import UNANSWERED, document, server_of
from quartermaster.host.commands import Command, Result, checked, deadline_error, refuse_secrets
from quartermaster.host.fake import Faults
from quartermaster.host.tools import hint_for
from quartermaster.support.errors import ToolMissingError

from . import answers
from .records import RefusedError
from .verbs import UnansweredError, Verbs

Heard = Callable[[str, Command], None]


class ModelCommands:
    """Of one agent; `heard` is told of each command when it is given."""

    def __init__(self, verbs: Verbs, address: str, faults: Faults, heard: Heard) -> None:
        self._verbs = verbs
        self._address = address
        self._faults = faults
        self._heard = heard

    async def run(self, command: Command) -> Result:
        refuse_secrets(command)
        if command.argv[0] != "gluster":
            name = command.argv[0]
            raise ToolMissingError(f"cannot {command.verb}: {name} is not installed", hint=hint_for(name))
        async with self._faults.step(f"{command.verb} (gluster)"):
            self._heard(self._address, command)
            answer = begin(self._verbs, self._address, command.argv)
            try:
                async with asyncio.timeout(command.timeout_s):
                    result = await answer
            except TimeoutError as error:
                raise deadline_error(command, Result()) from error
        return checked(command, result)


def begin(verbs: Verbs, address: str, argv: tuple[str, ...]) -> asyncio.Future[Result]:
    """Work on a command, whether or not somebody waits for its answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Result] = loop.create_future()
    if "--version" in argv:
        answer.set_result(answers.version())
        return answer
    words = [word for word in argv[1:] if not word.startswith("--")]
    parts, in_xml = verbs.parts(server_of(argv) or address, words, asking=address), "--xml" in argv

    def go_on() -> None:
        try:
            pause_s = next(parts)
        except StopIteration as end:
            _say(answer, document(end.value) if in_xml else Result(stdout=end.value.encode()))
        except RefusedError as error:
            refused = document("", code=error.code, error=str(error))
            _say(answer, refused if in_xml else Result(exit_code=1, stderr=str(error).encode()))
        except UnansweredError:
            _say(answer, UNANSWERED)
        else:
            # In nobody's process: what was begun does not end with whoever asked for it.
            loop.call_later(pause_s, go_on, context=contextvars.Context())

    go_on()
    return answer


def _say(answer: asyncio.Future[Result], result: Result) -> None:
    if not answer.done():
        answer.set_result(result)
