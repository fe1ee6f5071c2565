"""Channels over links: connected sockets, which can be inherited, passed on, or sent to another process.

Two processes set up a channel over a link. An open end of a channel cannot move to another process, in any language, because its
process has mapped the memory of the channel, and the kernel reports the death of that process to the peer.
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
    """Creates the two ends of a link. Keep one, and pass the other one to another process. A child can inherit its descriptor (fork,
    or `subprocess` with `pass_fds`). You can also use `socket.send_fds`, or make it an argument of a process of multiprocessing.

    Then close the passed end here. Before the channel is open, this process cannot detect the death of the other process while the
    passed end is still open here.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    return near, far


def offer_over(
    link: File | int, *, capacity: int | None = None, checksums: bool = False, parts: bool = True
) -> Producer:
    """Offers a channel over a link, like `offer`. The link is a socket or a descriptor, which the caller keeps and may close. The
    program at the other end may be in another language."""
    with _Link(link) as own:
        return _native.offer_over(own, capacity=capacity, checksums=checksums, parts=parts)


def take_over(link: File | int, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> Consumer:
    """Connects to the channel that is offered over a link, like `take`. The link is given as in `offer_over`."""
    with _Link(link) as own:
        return _native.take_over(own, copy=copy, trusted=trusted, hold=hold)


class _Link:
    """A duplicated descriptor in non-blocking mode."""

    def __init__(self, link: File | int) -> None:
        self._number = os.dup(link if isinstance(link, int) else link.fileno())
        os.set_blocking(self._number, False)

    def fileno(self) -> int:
        return self._number

    def __enter__(self) -> _Link:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._number)
