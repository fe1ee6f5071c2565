"""What can go wrong. The extension module raises these."""

import errno as _errno


class Error(OSError):
    """A call failed. `errno` is the kernel's number, or None where no call failed."""

    #: What had arrived before: messages on a channel, bytes of a copy.
    moved: int = 0
    #: The mechanism that moved last, where one did.
    mechanism: str | None = None


class PeerDied(Error):
    """The other process ended without a goodbye. All that it had sent was received first."""


class Closed(Error):
    """The other side said goodbye, and all that it had sent was received."""


class Timeout(Error, TimeoutError):
    """The timeout passed. Nothing is lost: call again."""


class TooLarge(Error):
    """More than the ring, or the room given, holds; or received arrays that are in use leave no room in the ring."""


class Corrupt(Error):
    """The other side wrote what the format does not allow."""


class NotPermitted(Error):
    """Somebody may not do this: another user, or a child made by fork."""


_KINDS: dict[str, tuple[type[Error], int | None]] = {
    "Error": (Error, None),
    "PeerDied": (PeerDied, _errno.EOWNERDEAD),
    "Closed": (Closed, _errno.EPIPE),
    "Timeout": (Timeout, _errno.ETIMEDOUT),
    "TooLarge": (TooLarge, _errno.EMSGSIZE),
    "Corrupt": (Corrupt, _errno.EBADMSG),
    "NotPermitted": (NotPermitted, _errno.EPERM),
}


def made(kind: str, number: int | None, message: str, moved: int, mechanism: str | None) -> Error:
    """The exception that the extension module raises."""
    cls, usual = _KINDS[kind]
    number = usual if number is None else number
    error = cls(message) if number is None else cls(number, message)
    error.moved, error.mechanism = moved, mechanism
    return error
