"""The side of a queue that gets: a ring from each process that puts."""

from __future__ import annotations

import hmac
import os
import select
import socket
import time
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import util
from typing import Any

from thalweg import _native
from thalweg._call import CALL, PATIENCE, WELCOME, Address, left, new_socket, process_of, watched
from thalweg._errors import Closed, Corrupt, Error, PeerDied, Timeout, made
from thalweg._native import Offer, Take

#: Calls that wait until they are looked at.
_BACKLOG = 128
#: Between two looks whether items that are kept leave no room, in seconds.
_LOOK = 1.0
#: In which a ring shows whether its sender waits for what is kept, in seconds: it has to have looked twice.
_DOUBT = 0.25
#: Items of senders that are there, before new ones are looked for.
_TURN = 16


@dataclass(frozen=True)
class Departed:
    """A sender that ended without a goodbye: it was killed, or wrote what the format does not allow."""

    #: Its process.
    pid: int
    #: Items that had come from it, through the ring that it used last.
    received: int
    #: What was found.
    error: Error


class _Source:
    """A ring of a sender."""

    def __init__(self, take: Take, pid: int, call: tuple[bytes, int]) -> None:
        self.take, self.pid = take, pid
        self.sender, self.number = call
        self.process = watched(pid) if pid else None

    def close(self) -> None:
        self.take.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None


# In a child made by fork a copy would keep the listener alive after the death of the process that looks at it.
_receivers: weakref.WeakSet[Receiver] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for receiver in list(_receivers):
        receiver.leave()


os.register_at_fork(after_in_child=_leave_to_the_parent)


class Receiver:
    """The side that gets. Its owner lets one thread at a time in, but for `local` and `close`."""

    def __init__(self, address: Address, *, copy: bool) -> None:
        self._address, self._copy, self._is_stopped = address, copy, False
        self._calls: dict[int, socket.socket] = {}
        self._sources: list[_Source] = []
        #: Rings behind one of the same sender that has not ended yet.
        self._later: list[_Source] = []
        self._departed: list[Departed] = []
        self._next = self._looks = 0
        self._arrivals: deque[_Source] = deque()
        self._news = -1
        try:
            self._news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._door = new_socket()
            self._door.bind(address.name)
            self._door.listen(_BACKLOG)
        except OSError as error:
            raise made("Error", error.errno, f"a queue: {error.strerror}", 0, None) from None
        _receivers.add(self)
        # Else who puts would take the end of this process for a death.
        util.Finalize(self, Receiver._leave_at_exit, args=(weakref.ref(self),), exitpriority=10)

    @staticmethod
    def _leave_at_exit(receiver: weakref.ref[Receiver]) -> None:
        if (alive := receiver()) is not None:
            alive.__del__()

    def __del__(self) -> None:
        # Of a thread that still gets nobody takes its ring away.
        with suppress(RuntimeError, Error):
            self.close()

    def leave(self) -> None:
        """In a child: closes what it shares with the parent that listens."""
        # There is none where it could not be made.
        if hasattr(self, "_door"):
            self._door.close()
        for call in self._calls.values():
            call.close()

    def stop(self) -> None:
        """Ends a `get` that waits, with ValueError."""
        self._is_stopped = True
        if self._news >= 0:
            os.eventfd_write(self._news, 1)

    def close(self) -> None:
        self.leave()
        self._calls.clear()
        for source in (*self._sources, *self._later, *self._arrivals):
            source.close()
        self._sources, self._later = [], []
        self._arrivals.clear()
        if self._news >= 0:
            os.close(self._news)
            self._news = -1

    def departed(self) -> tuple[Departed, ...]:
        return tuple(self._departed)

    def local(self, sender: bytes, number: int, capacity: int) -> Offer:
        """A ring for this process itself, which cannot wait for its own answer."""
        self._not_stopped()
        out, into = _native.pair(capacity=capacity, copy=self._copy)
        self._arrivals.append(_Source(into, 0, (sender, number)))
        os.eventfd_write(self._news, 1)
        return out

    def get(self, deadline: float | None) -> Any:
        """The next item; Timeout if none has come before the deadline."""
        while True:
            self._not_stopped()
            source = self._ready()
            if source is None:
                self._admit()
                source = self._ready()
            if source is None:
                if deadline is not None and time.monotonic() >= deadline:
                    raise made("Timeout", None, "no item came", 0, None)
                if not self._wait(deadline) and not self._copy:
                    # A ring that kept items fill looks like one to which nothing is put: TooLarge says so.
                    for silent in list(self._sources):
                        with suppress(Timeout, Closed, PeerDied, Corrupt):
                            return silent.take.receive_object(timeout=_DOUBT)
                continue
            try:
                return source.take.receive_object(timeout=0)
            except Timeout:
                continue
            except Corrupt as error:
                # It would stay the next one for ever.
                self._depart(source, error)

    def _not_stopped(self) -> None:
        if self._is_stopped:
            raise ValueError("the queue is closed")

    def is_empty(self) -> bool:
        self._not_stopped()
        self._admit()
        before = self._next
        found = self._ready()
        self._next = before
        return found is None

    def _ready(self) -> _Source | None:
        """Whose item is next, in turn. Senders that are gone are put away."""
        self._looks += 1
        if self._looks % _TURN == 0:
            self._admit()
        looked = False
        while not looked:
            looked = True
            for source in self._sources[self._next :] + self._sources[: self._next]:
                try:
                    if source.take.is_ready():
                        self._next = self._sources.index(source) + 1
                        return source
                except Closed:
                    looked = not self._end(source)
                except (PeerDied, Corrupt) as error:
                    looked = not self._depart(source, error)
                if not looked:
                    break
        return None

    def _depart(self, source: _Source, error: Error) -> bool:
        self._departed.append(Departed(source.pid, source.take.received, error))
        return self._end(source)

    def _end(self, source: _Source) -> bool:
        """Whether another ring of the same sender has taken its place, which is to be looked at too."""
        source.close()
        self._sources.remove(source)
        for later in self._later:
            if later.sender == source.sender:
                self._later.remove(later)
                self._sources.append(later)
                return True
        return False

    def _add(self, source: _Source) -> None:
        is_later = any(other.sender == source.sender for other in self._sources)
        (self._later if is_later else self._sources).append(source)

    def _admit(self) -> None:
        """Takes in who has called, without waiting for anybody but one that has been welcomed."""
        while self._arrivals:
            self._add(self._arrivals.popleft())
        while True:
            try:
                call, _ = self._door.accept()
            except BlockingIOError:
                break
            call.setblocking(False)
            if process_of(call) is None:
                call.close()
                continue
            self._calls[call.fileno()] = call
        for call in list(self._calls.values()):
            number = call.fileno()
            try:
                said = call.recv(CALL.size + 1)
            except BlockingIOError:
                continue
            except OSError:
                said = b""
            del self._calls[number]
            with call:
                self._welcome(call, said)

    def _welcome(self, call: socket.socket, said: bytes) -> None:
        if len(said) != CALL.size:
            return
        key, sender, number = CALL.unpack(said)
        if not hmac.compare_digest(key, self._address.key):
            return
        try:
            # Of another user it is refused here.
            take = _native.take_over(call, copy=self._copy)
            call.send(WELCOME)
            take.open(timeout=PATIENCE)
        except (Error, OSError):
            # It went, or was stopped: it calls again when it goes on.
            return
        self._add(_Source(take, process_of(call) or 0, (sender, number)))

    def _wait(self, deadline: float | None) -> bool:
        """Until there may be an item, or news of a sender; False if that was in vain. Where items stay in their rings, no longer than
        `_LOOK`."""
        poll = select.poll()
        poll.register(self._door, select.POLLIN)
        poll.register(self._news, select.POLLIN)
        for call in self._calls.values():
            poll.register(call, select.POLLIN)
        for source in self._sources:
            try:
                if not source.take.arm():
                    return True
            except Error:
                # The next look finds it again, and knows what to do with it.
                return True
            poll.register(source.take.fileno(), select.POLLIN)
            if source.process is not None:
                poll.register(source.process, select.POLLIN)
        # No more than poll takes; then it looks and waits again.
        most = 1 << 20 if self._copy else _LOOK
        seconds = left(deadline)
        told = poll.poll(1000 * (most if seconds is None else min(seconds, most)))
        with suppress(BlockingIOError):
            os.eventfd_read(self._news)
        return bool(told)
