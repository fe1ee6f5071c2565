"""Admits the senders of a queue in a thread of the process that gets, so that no first `put` has to wait for a `get`."""

from __future__ import annotations

import hmac
import os
import select
import socket
import threading
from collections import deque
from contextlib import suppress

from thalweg import _native
from thalweg._call import CALL, PATIENCE, WELCOME, Address, new_socket, process_of, watched
from thalweg._errors import Error, made
from thalweg._native import Consumer
from thalweg._threads import begun

#: Length of the listener's queue.
_BACKLOG = 128
#: Pause after a failed accept, in seconds.
_REST = 0.1


class Source:
    """The ring of a sender."""

    def __init__(self, take: Consumer, pid: int, call: tuple[bytes, int]) -> None:
        self.take, self.pid = take, pid
        self.sender, self.number = call
        self.process = watched(pid) if pid else None

    def close(self) -> None:
        self.take.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None


class Door:
    """Listens, and appends senders that know the key to `arrivals`. The descriptor `news` becomes readable after each
    sender."""

    def __init__(self, address: Address, *, copy: bool) -> None:
        self._key, self._copy = address.key, copy
        self.arrivals: deque[Source] = deque()
        self._calls: dict[int, socket.socket] = {}
        self._is_closed = False
        self.news = self._end = -1
        try:
            self.news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._socket = new_socket()
            self._socket.bind(address.name)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._shut()
            raise made("Error", error.errno, f"cannot create a queue: {error.strerror}", 0, None) from None
        self._thread = begun("thalweg-door", self._run)

    def arrived(self, source: Source) -> None:
        """Adds a sender."""
        self.arrivals.append(source)
        if self.news >= 0:
            self.tell()

    def tell(self) -> None:
        """Wakes the thread that polls `news`."""
        os.eventfd_write(self.news, 1)

    def close(self) -> None:
        """Stops admitting senders. Waits at most `PATIENCE` for a sender that is connecting."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        os.eventfd_write(self._end, 1)
        # Garbage collection may call this in any thread, including the door's.
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._shut()

    def leave(self) -> None:
        """Closes the descriptors that a forked child shares with its parent. The child does not have the thread."""
        self._is_closed = True
        self._shut()

    def _shut(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()
        for call in self._calls.values():
            call.close()
        self._calls.clear()
        for descriptor in (self.news, self._end):
            if descriptor >= 0:
                os.close(descriptor)
        self.news = self._end = -1

    def _run(self) -> None:
        while not self._is_closed:
            poll = select.poll()
            if self._end < 0:
                return
            poll.register(self._end, select.POLLIN)
            poll.register(self._socket, select.POLLIN)
            for call in self._calls.values():
                poll.register(call, select.POLLIN)
            poll.poll()
            try:
                self._accept()
            except BlockingIOError:
                pass
            except OSError:
                # No descriptor is free, so an immediate retry would fail again. Senders wait in the kernel's queue.
                select.select([self._end], [], [], _REST)
            for number, call in list(self._calls.items()):
                self._hear(number, call)

    def _accept(self) -> None:
        while not self._is_closed:
            call, _ = self._socket.accept()
            call.setblocking(False)
            if process_of(call) is None:
                call.close()
            else:
                self._calls[call.fileno()] = call

    def _hear(self, number: int, call: socket.socket) -> None:
        try:
            said = call.recv(CALL.size + 1)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._calls.pop(number, None)
        with call:
            self._welcome(call, said)

    def _welcome(self, call: socket.socket, said: bytes) -> None:
        if len(said) != CALL.size:
            return
        key, sender, number = CALL.unpack(said)
        if not hmac.compare_digest(key, self._key):
            return
        try:
            # `take_over` rejects processes of other users.
            take = _native.take_over(call, copy=self._copy)
            call.send(WELCOME)
            take.open(timeout=PATIENCE)
        except (Error, OSError):
            # The sender is gone or stopped. A stopped sender connects again when it continues.
            return
        self.arrived(Source(take, process_of(call) or 0, (sender, number)))
