"""The sending side of a queue in one process."""

from __future__ import annotations

import secrets
import weakref
from multiprocessing import util
from typing import Protocol

from thalweg._call import Address, Calling, left
from thalweg._errors import Timeout, TooLarge, made
from thalweg._native import Producer
from thalweg._objects import Parted


#: Length in seconds of one slice of a wait for room. Signal handlers run between slices.
_SLICE = 0.05


class Turns(Protocol):
    """The lock of the threads that put."""

    waits_for_room: bool


class Local(Protocol):
    """The receiving side in this process. It creates a ring without a connection."""

    def local(self, sender: bytes, number: int, capacity: int) -> Producer: ...


class Sender:
    """The sending side in one process. Its owner admits one thread at a time."""

    def __init__(self, address: Address, capacity: int | None, receiver: Local | None) -> None:
        self._address, self._capacity, self._receiver = address, capacity, receiver
        self._name = secrets.token_bytes(16)
        self._number = 0
        self._end: Producer | None = None
        #: Size of the item for which the ring was created, in bytes.
        self._made_for = 0
        self._calling: Calling | None = None
        # A child of multiprocessing exits without finalizing its interpreter, but must close its ring.
        self._at_exit = util.Finalize(self, Sender._leave, args=(weakref.ref(self),), exitpriority=10)

    @staticmethod
    def _leave(sender: weakref.ref[Sender]) -> None:
        if (alive := sender()) is not None and alive._end is not None:
            alive._end.close()

    def put(self, parted: Parted, deadline: float | None, turns: Turns) -> None:
        """Sends an item. Raises Timeout if the ring has no room before the deadline. During the wait, a signal handler may call
        `put` too: the ring is not locked between two slices, and each slice uses the ring that is current then."""
        size = len(parted)
        while True:
            end, seconds = self._opened(size, deadline), left(deadline)
            try:
                return end.send_object(parted, timeout=_SLICE if seconds is None else min(seconds, _SLICE))
            except Timeout:
                turns.waits_for_room = True
                if left(deadline) == 0:
                    raise
            except TooLarge:
                if self._capacity is not None or self._made_for >= size:
                    raise
                # The receiver reads the items in the old ring first.
                self._number += 1
                self._end = None
                end.close()

    def close(self) -> None:
        if self._end is not None:
            self._end.close()

    def _opened(self, size: int, deadline: float | None) -> Producer:
        if self._end is not None:
            return self._end
        if self._receiver is not None:
            capacity = self._capacity or max(1 << 20, min(4 * size + 4096, 1 << 30))
            self._end, self._made_for = self._receiver.local(self._name, self._number, capacity), size
            return self._end
        if self._calling is None or self._calling.size < size:
            self._calling = Calling(self._address, (self._name, self._number), (size, self._capacity))
        calling = self._calling
        # Callers with short timeouts wait for the handshake before the first item too, because the timeout limits only the wait
        # for room.
        seconds = left(deadline)
        if not calling.over.wait(None if seconds is None else max(seconds, left(calling.usual_end) or 0)):
            raise made("Timeout", None, "the receiving process does not answer", 0, None)
        if self._calling is calling:
            self._calling = None
        if calling.error is not None:
            raise calling.error
        assert calling.end is not None
        if self._end is None:
            self._end, self._made_for = calling.end, calling.size
        return self._end
