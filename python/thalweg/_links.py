"""Channels over links: connected sockets, which can be inherited, passed on, or sent to another process.

A link is what two processes agree over on a channel. An open channel stays in its process, in every language: its memory is
mapped there, and the kernel watches that process for its peer.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from thalweg import _native
from thalweg._native import Consumer, Producer

if TYPE_CHECKING:
    from thalweg._commands import File


def link() -> tuple[socket.socket, socket.socket]:
    """The two ends of a link. One stays here, the other goes to another process: as a descriptor that a child inherits
    (`subprocess` with `pass_fds`, fork), by `socket.send_fds`, or as an argument of a process of multiprocessing.

    Close here what went there: the end of that process is told by nothing else until the channel is open.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    return near, far


def offer_over(
    link: File | int, *, capacity: int | None = None, checksums: bool = False, parts: bool = True
) -> Producer:
    """Offers a channel over a link, its socket or descriptor, which stays the caller's and can be closed; as `offer` otherwise. The other
    end takes it, and may be of another language."""
    with _Link(link) as own:
        return _native.offer_over(own, capacity=capacity, checksums=checksums, parts=parts)


def take_over(link: File | int, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> Consumer:
    """Takes what is offered over a link, as `offer_over`; as `take` otherwise."""
    with _Link(link) as own:
        return _native.take_over(own, copy=copy, trusted=trusted, hold=hold)


class _Link:
    """A descriptor of our own, which does not block."""

    def __init__(self, link: File | int) -> None:
        self._number = os.dup(link if isinstance(link, int) else link.fileno())
        os.set_blocking(self._number, False)

    def fileno(self) -> int:
        return self._number

    def __enter__(self) -> _Link:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._number)
