"""What may go wrong when a volume is connected, each with a reason that programs may rely on.

    QuartermasterError
    ├── InvalidError
    │   └── ConnectionDataError      keys of `data` are missing or mistyped; `problems` has every one with its fix
    └── HostError
        └── ConnectorError           this host could not do it
            ├── UnsupportedDriverError   no such driver type, or none for this platform
            ├── NotAttachedError         the volume is not attached to this host
            ├── NotAppearingError        (a DeadlineError too) the device did not appear in time
            ├── UnreachableError         a server or portal does not answer
            │   └── NotAnsweringError    (a DeadlineError too) it was waited for until the time was up
            ├── AuthenticationError      the storage system refuses the credentials
            ├── IdentityMismatchError    the device is not this volume; `expected` and `found` name both
            ├── AttachmentConflictError  the volume is attached here in another way
            ├── VolumeBusyError          the device is mounted or used; nothing was changed
            ├── LeftoverError            something of the volume is still on this host; `recover()` tries again
            └── RecordDamagedError       a file with the state of an attachment cannot be read

Programs that fail are CommandError, programs that are missing ToolMissingError: see `quartermaster.support.errors`.
"""

from __future__ import annotations

from quartermaster.support.errors import DeadlineError, HostError, InvalidError


class ConnectionDataError(InvalidError):
    """What the storage system handed over does not fit the driver. All mistakes are in `problems`."""

    reason = "ConnectionData"


class ConnectorError(HostError):
    reason = "Connector"


class UnsupportedDriverError(ConnectorError):
    reason = "UnsupportedDriver"


class NotAttachedError(ConnectorError):
    reason = "NotAttached"


class NotAppearingError(ConnectorError, DeadlineError):
    reason = "NotAppearing"


class UnreachableError(ConnectorError):
    reason = "Unreachable"


class NotAnsweringError(UnreachableError, DeadlineError):
    """To programs the same as its base; to us, one whose own programs may still wait for the answer."""


class AuthenticationError(ConnectorError):
    reason = "Authentication"


class IdentityMismatchError(ConnectorError):
    """A device of another volume was found in the place of this one. It was not touched."""

    reason = "IdentityMismatch"

    def __init__(self, message: str, *, expected: str, found: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.found = found


class AttachmentConflictError(ConnectorError):
    reason = "AttachmentConflict"


class VolumeBusyError(ConnectorError):
    reason = "VolumeBusy"


class LeftoverError(ConnectorError):
    reason = "Leftover"


class RecordDamagedError(ConnectorError):
    """`volume_id` is what the name of the file says."""

    reason = "RecordDamaged"

    def __init__(self, message: str, *, volume_id: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.volume_id = volume_id
