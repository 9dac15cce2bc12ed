"""Commands without processes: answers by the beginning of the argument list, each call recorded."""

from __future__ import annotations

from collections.abc import Callable

from quartermaster.host.commands import Command, Result, checked, deadline_error, refuse_secrets
from quartermaster.host.fake.faults import Faults
from quartermaster.host.tools import hint_for
from quartermaster.support.errors import ToolMissingError

Handler = Callable[[Command], Result]


class FakeCommands:
    """What has no answer is a program that is not installed."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._answers: dict[tuple[str, ...], Handler] = {}
        self.calls: list[Command] = []

    def answer(self, *beginning: str, stdout: str = "", stderr: str = "", exit_code: int = 0) -> None:
        result = Result(exit_code=exit_code, stdout=stdout.encode(), stderr=stderr.encode())
        self.handle(*beginning, handler=lambda _command: result)

    def handle(self, *beginning: str, handler: Handler) -> None:
        """The handler may raise TimeoutError: the command then meets its deadline."""
        self._answers[beginning] = handler

    def changing(self) -> list[Command]:
        """The calls that were to change the host."""
        return [command for command in self.calls if command.changes]

    async def run(self, command: Command) -> Result:
        refuse_secrets(command)
        async with self._faults.step(f"{command.verb} ({command.argv[0]})"):
            self.calls.append(command)
            handler = self._find(command)
            try:
                result = handler(command)
            except TimeoutError as error:
                raise deadline_error(command, Result()) from error
        return checked(command, result)

    def _find(self, command: Command) -> Handler:
        for length in range(len(command.argv), 0, -1):
            handler = self._answers.get(command.argv[:length])
            if handler is not None:
                return handler
        name = command.argv[0]
        raise ToolMissingError(f"cannot {command.verb}: {name} is not installed", hint=hint_for(name))
