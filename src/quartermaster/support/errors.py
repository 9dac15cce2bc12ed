"""The one tree of errors. Each has a stable reason code for programs and a sentence for people.

    QuartermasterError
    ├── InvalidError             what was given is wrong; `problems` lists every mistake with its path
    ├── UsageError               the command line or a setting is wrong
    ├── StoreError               a store could not do it
    │   ├── NotFoundError        the object is not there
    │   ├── AlreadyExistsError   an object of that name is there
    │   ├── ConflictError        somebody else wrote in between: read again, decide again, write again
    │   │   └── ApplyConflictError   fields belong to other managers; `conflicts` names them
    │   ├── FencedError          the writer is no longer the leader: stop
    │   ├── ExpiredError         the revision was compacted: list again
    │   ├── UnreadableError      what is stored does not fit its type: mend it by an apply, or delete it
    │   ├── RefusedError         the store understood and will not do it
    │   │   ├── UnauthorizedError    who are you?
    │   │   └── ForbiddenError       you may not
    │   ├── UnavailableError     the store does not answer (yet); the write may or may not have happened
    │   └── DamagedError         the embedded file is read-only, full or corrupt
    ├── HostError                this host could not do it
    │   ├── CommandError         a program failed; `argv`, `exit_code` and the end of its `stderr`
    │   │   └── CommandDeadlineError (a DeadlineError too) it took too long and was ended
    │   ├── ToolMissingError     a program is not installed; the hint names its package
    │   ├── DeviceRefusedError   the device may hold data or is in use: it was not touched; `code` says why
    │   ├── MountConflictError   something else is mounted there, or lies there
    │   ├── MountBusyError       it cannot be unmounted while somebody uses it
    │   └── DaemonError          a daemon cannot be started, stopped or told apart from another process
    ├── DeadlineError            a bounded wait ended
    └── TerminalError            trying again cannot help until the object changes (a reconciler's verdict)

A message reads "cannot <verb> <object>: <cause>"; `hint` says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class QuartermasterError(Exception):
    """Base of all errors that a caller may meet."""

    reason = "Error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in one document: where it is, what is wrong, how to mend it."""

    path: str
    message: str
    fix: str = ""
    line: int = 0
    source: str = ""  # the file

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line and not self.source else str(self.line or "")
        place = ":".join(filter(None, (self.source, line)))
        where = "".join(f"{part}: " for part in (place, self.path) if part)
        return f"{where}{self.message}" + (f" ({self.fix})" if self.fix else "")


class InvalidError(QuartermasterError):
    """What was given is wrong. All mistakes are in `problems`."""

    reason = "Invalid"

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        if len(self.problems) == 1:
            return f"{self.message}: {self.problems[0]}"
        return "\n".join([f"{self.message}: {len(self.problems)} mistakes", *(f"  {p}" for p in self.problems)])


class UsageError(QuartermasterError):
    reason = "Usage"


class StoreError(QuartermasterError):
    reason = "Store"


class NotFoundError(StoreError):
    reason = "NotFound"


class AlreadyExistsError(StoreError):
    reason = "AlreadyExists"


class ConflictError(StoreError):
    reason = "Conflict"


@dataclass(frozen=True, order=True)
class FieldConflict:
    """A field that an apply wanted to change and another manager owns."""

    manager: str
    path: str


class ApplyConflictError(ConflictError):
    reason = "ApplyConflict"

    def __init__(self, message: str, conflicts: Sequence[FieldConflict] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.conflicts = tuple(sorted(conflicts))


class FencedError(StoreError):
    reason = "Fenced"


class ExpiredError(StoreError):
    reason = "Expired"


class UnreadableError(StoreError):
    reason = "Unreadable"


class RefusedError(StoreError):
    reason = "Refused"


class UnauthorizedError(RefusedError):
    reason = "Unauthorized"


class ForbiddenError(RefusedError):
    reason = "Forbidden"


class UnavailableError(StoreError):
    """The store did not answer. A write that raised this may have happened: read before repeating it."""

    reason = "Unavailable"

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class DamagedError(StoreError):
    reason = "Damaged"


class DeadlineError(QuartermasterError):
    reason = "Deadline"


class HostError(QuartermasterError):
    """Whoever decides by why it failed goes by `reason`, never by the sentence."""

    reason = "Host"

    def __init__(self, message: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason or type(self).reason


class CommandError(HostError):
    """A program failed. `exit_code` is negative for a signal, and None where there is none."""

    reason = "CommandFailed"

    def __init__(
        self, message: str, *, hint: str = "", argv: Sequence[str] = (), exit_code: int | None = None, stderr: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.argv = tuple(argv)
        self.exit_code = exit_code
        self.stderr = stderr


class CommandDeadlineError(CommandError, DeadlineError):
    """A program took too long and was ended; where `stuck_pid` is not 0, the kernel does not let that process end."""

    reason = "CommandDeadline"
    stuck_pid = 0


class ToolMissingError(HostError):
    reason = "ToolMissing"


class DeviceRefusedError(HostError):
    """The device was not touched. `code` is the reason in one word that programs may rely on."""

    reason = "DeviceRefused"

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class MountConflictError(HostError):
    reason = "MountConflict"


class MountBusyError(HostError):
    reason = "MountBusy"


class DaemonError(HostError):
    reason = "Daemon"


class TerminalError(QuartermasterError):
    """What a reconciler raises when only a change of the object can help: it is not tried again before."""

    reason = "Terminal"
