"""The receiving side of a queue: one ring from each process that puts."""

from __future__ import annotations

import os
import select
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import util
from typing import Any

from thalweg import _native
from thalweg._call import Address, left
from thalweg._door import Door, Source
from thalweg._errors import Closed, Corrupt, Error, PeerDied, Timeout, made
from thalweg._native import Producer

#: Interval in seconds between checks whether items in use fill a ring.
_LOOK = 1.0
#: Time in seconds that a receive needs to detect that the sender waits for room, because the sender must check the ring twice
#: before. With a shorter timeout, a later call detects it.
_DOUBT = 0.25
#: Number of items that are received before new senders are admitted.
_TURN = 16


@dataclass(frozen=True)
class Departed:
    """A sender that ended without closing: it was killed, or violated the format."""

    #: The process.
    pid: int
    #: Number of items received from it through its last ring.
    received: int
    #: The error.
    error: Error


# All receivers of this process. A forked child must close their listeners, which would otherwise survive the receiving process.
_receivers: weakref.WeakSet[Receiver] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for receiver in list(_receivers):
        receiver.leave()


os.register_at_fork(after_in_child=_leave_to_the_parent)


class Receiver:
    """The receiving side. Its owner admits one thread at a time, except for `local` and `close`."""

    def __init__(self, address: Address, *, copy: bool) -> None:
        self._address, self._copy, self._is_stopped = address, copy, False
        self._sources: list[Source] = []
        #: Rings whose sender still has an earlier ring open.
        self._later: list[Source] = []
        self._departed: list[Departed] = []
        self._next = self._looks = 0
        self._door = Door(address, copy=copy)
        _receivers.add(self)
        # Closes the rings at exit. Otherwise senders would report the normal exit of this process as a death.
        util.Finalize(self, Receiver._leave_at_exit, args=(weakref.ref(self),), exitpriority=10)

    @staticmethod
    def _leave_at_exit(receiver: weakref.ref[Receiver]) -> None:
        if (alive := receiver()) is not None:
            alive.__del__()

    def __del__(self) -> None:
        # AttributeError if the creation of the door failed. RuntimeError if another thread uses a ring, which then stays open.
        with suppress(AttributeError, RuntimeError, Error):
            self.close()

    def leave(self) -> None:
        """Closes the descriptors that a forked child shares with its parent."""
        self._door.leave()

    def stop(self) -> None:
        """Ends a waiting `get` with ValueError."""
        self._is_stopped = True
        if self._door.news >= 0:
            self._door.tell()

    def close(self) -> None:
        self._door.close()
        for source in (*self._sources, *self._later, *self._door.arrivals):
            source.close()
        self._sources, self._later = [], []
        self._door.arrivals.clear()

    def departed(self) -> tuple[Departed, ...]:
        return tuple(self._departed)

    def local(self, sender: bytes, number: int, capacity: int) -> Producer:
        """Creates a ring for this process itself, which cannot wait for its own handshake."""
        self._not_stopped()
        out, into = _native.pair(capacity=capacity, copy=self._copy, parts=False)
        self._door.arrived(Source(into, 0, (sender, number)))
        return out

    def get(self, deadline: float | None) -> Any:
        """Returns the next item. Raises Timeout if none arrives before the deadline."""
        while True:
            self._not_stopped()
            source = self._ready()
            if source is None:
                self._admit()
                source = self._ready()
            if source is None:
                if deadline is not None and time.monotonic() >= deadline:
                    raise made("Timeout", None, "no item arrived", 0, None)
                if not self._wait(deadline) and not self._copy:
                    # A ring that is full of items in use looks like an idle ring. If nothing can free the items, this call raises
                    # TooLarge.
                    for silent in list(self._sources):
                        seconds = left(deadline)
                        doubt = _DOUBT if seconds is None else min(_DOUBT, seconds)
                        with suppress(Timeout, Closed, PeerDied, Corrupt):
                            return silent.take.receive_object(timeout=doubt)
                continue
            try:
                return source.take.receive_object(timeout=0)
            except Timeout:
                continue
            except Corrupt as error:
                # Removes the sender, because its invalid item would stay the next one for ever.
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

    def _ready(self) -> Source | None:
        """Returns the ring with the next item, in turn. Removes senders that are gone."""
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

    def _depart(self, source: Source, error: Error) -> bool:
        self._departed.append(Departed(source.pid, source.take.received, error))
        return self._end(source)

    def _end(self, source: Source) -> bool:
        """Removes a ring. Returns True if another ring of its sender replaces it. The caller must check that ring too."""
        source.close()
        self._sources.remove(source)
        for later in self._later:
            if later.sender == source.sender:
                self._later.remove(later)
                self._sources.append(later)
                return True
        return False

    def _add(self, source: Source) -> None:
        is_later = any(other.sender == source.sender for other in self._sources)
        (self._later if is_later else self._sources).append(source)

    def _admit(self) -> None:
        """Adds the rings of new senders."""
        while self._door.arrivals:
            self._add(self._door.arrivals.popleft())

    def _wait(self, deadline: float | None) -> bool:
        """Waits until an item may have arrived or a sender may have changed. Returns False after a timeout. If items are not
        copied out of their rings, waits at most `_LOOK` seconds."""
        poll = select.poll()
        poll.register(self._door.news, select.POLLIN)
        for source in self._sources:
            try:
                if not source.take.arm():
                    return True
            except Error:
                # The next check finds and handles the error.
                return True
            poll.register(source.take.fileno(), select.POLLIN)
            if source.process is not None:
                poll.register(source.process, select.POLLIN)
        # Within the limit of poll(2). If this time passes, the caller waits again.
        most = 1 << 20 if self._copy else _LOOK
        seconds = left(deadline)
        told = poll.poll(1000 * (most if seconds is None else min(seconds, most)))
        with suppress(BlockingIOError):
            os.eventfd_read(self._door.news)
        return bool(told)
