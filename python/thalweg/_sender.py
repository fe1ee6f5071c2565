"""The side of a queue that puts, of one process."""

from __future__ import annotations

import secrets
import weakref
from multiprocessing import util
from typing import Protocol

from thalweg._call import Address, Calling, left
from thalweg._errors import TooLarge, made
from thalweg._native import Offer
from thalweg._objects import Parted


class Local(Protocol):
    """The side that gets, where it is in this process: it makes a ring without a call."""

    def local(self, sender: bytes, number: int, capacity: int) -> Offer: ...


class Sender:
    """The side that puts, of one process. Its owner lets one thread at a time in."""

    def __init__(self, address: Address, capacity: int | None, receiver: Local | None) -> None:
        self._address, self._capacity, self._receiver = address, capacity, receiver
        self._name = secrets.token_bytes(16)
        self._number = 0
        self._end: Offer | None = None
        self._calling: Calling | None = None
        # A child of multiprocessing ends without the end of its interpreter, and is to say goodbye all the same.
        self._at_exit = util.Finalize(self, Sender._leave, args=(weakref.ref(self),), exitpriority=10)

    @staticmethod
    def _leave(sender: weakref.ref[Sender]) -> None:
        if (alive := sender()) is not None and alive._end is not None:
            alive._end.close()

    def put(self, obj: object, deadline: float | None) -> None:
        """Timeout if there was no room, or nobody who looks, before the deadline."""
        parted = Parted(obj)
        end = self._opened(len(parted), deadline)
        try:
            return end.send_object(parted, timeout=left(deadline))
        except TooLarge:
            if self._capacity is not None:
                raise
        # What is in it is received first.
        end.close()
        self._end = None
        self._number += 1
        self._opened(len(parted), deadline).send_object(parted, timeout=left(deadline))

    def close(self) -> None:
        if self._end is not None:
            self._end.close()

    def _opened(self, size: int, deadline: float | None) -> Offer:
        if self._end is not None:
            return self._end
        if self._receiver is not None:
            capacity = self._capacity or max(1 << 20, min(4 * size + 4096, 1 << 30))
            self._end = self._receiver.local(self._name, self._number, capacity)
            return self._end
        if self._calling is None or self._calling.size < size:
            self._calling = Calling(self._address, (self._name, self._number), (size, self._capacity))
        calling = self._calling
        if not calling.over.wait(left(deadline)):
            raise made("Timeout", None, "nobody has looked at the queue yet", 0, None)
        self._calling = None
        if calling.error is not None:
            raise calling.error
        assert calling.end is not None
        self._end = calling.end
        return self._end
