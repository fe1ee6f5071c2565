"""The exceptions of the package. The extension module raises them."""

import errno as _errno


class Error(OSError):
    """An operation failed. `errno` is the error number of the failed system call; None if none failed."""

    #: Amount that had arrived before the failure: messages on a channel, or bytes of a copy.
    moved: int = 0
    #: The mechanism that moved the last bytes, if any.
    mechanism: str | None = None


class PeerDied(Error):
    """The other process ended without closing the channel. The caller has received everything that the process sent."""


class Closed(Error):
    """The other side closed the channel, and everything that it sent was received."""


class Timeout(Error, TimeoutError):
    """The timeout passed. Nothing is lost: the call can be repeated."""


class TooLarge(Error):
    """The message is larger than the ring or the available memory, or received arrays in use fill the ring."""


class Corrupt(Error):
    """The other side violated the format."""


class NotPermitted(Error):
    """The operation is not allowed, for example for another user, in a forked child, or for a sender that is not
    trusted."""


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
    """Returns an exception for the extension module to raise."""
    cls, usual = _KINDS[kind]
    number = usual if number is None else number
    error = cls(message) if number is None else cls(number, message)
    error.moved, error.mechanism = moved, mechanism
    return error
