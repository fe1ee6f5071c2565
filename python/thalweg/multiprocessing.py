"""Queues between processes through shared memory, with the methods of `multiprocessing`'s queues.

    from thalweg.multiprocessing import Queue

    queue = Queue()                                # in the process that gets
    Process(target=work, args=(queue,)).start()    # spawn, fork or forkserver
    item = queue.get()

Any number of processes and threads may put items. Only the process that created the queue gets items. The memory of arrays is copied, not
pickled. If a process that puts is killed, only the item that it was putting is lost. If the process that gets is killed, `put` raises
PeerDied. Methods of the standard queues that are missing here raise NotImplementedError with the reason.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Full
from typing import Any, NoReturn

from thalweg._call import PATIENCE, Address, left
from thalweg._errors import Closed, NotPermitted, PeerDied, Timeout
from thalweg._objects import Parted
from thalweg._receiver import Departed, Receiver
from thalweg._sender import Sender

__all__ = ["Closed", "Departed", "Empty", "Full", "JoinableQueue", "NotPermitted", "PeerDied", "Pipe", "Queue", "SimpleQueue"]

#: Shortest wait for another thread, in seconds.
_SOON = 0.01

_made_here: weakref.WeakValueDictionary[Address, _Queue] = weakref.WeakValueDictionary()


def _absent(what: str, why: str) -> NoReturn:
    raise NotImplementedError(f"{what} is not supported: {why}; Python's own multiprocessing supports it")


class _Turns:
    """Admits one thread at a time to put or get. That thread may enter again, in a signal handler or in a `__del__`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner: int | None = None
        #: True while the admitted thread waits for room, possibly without end.
        self.waits_for_room = False

    @contextmanager
    def held(self, deadline: float | None) -> Iterator[None]:
        """Admits this thread until the `with` block ends. Raises Timeout if the deadline passes while another thread is admitted and waits
        for room. If that thread does not wait for room, the timeout is at least `PATIENCE`."""
        outer, self._owner = self._acquired(deadline), threading.get_ident()
        try:
            yield
        finally:
            self._owner = outer
            self._lock.release()

    def not_again(self) -> None:
        """Raises RuntimeError if this thread is inside of a `get`, because the caller would wait for a ring that this `get` uses."""
        if self._owner == threading.get_ident():
            raise RuntimeError("a get() of this thread is using the queue: do not use it in a signal handler, __del__ or __setstate__")

    def _acquired(self, deadline: float | None) -> int | None:
        seconds = left(deadline)
        limit = None if seconds is None else time.monotonic() + max(seconds, PATIENCE)
        while not self._lock.acquire(timeout=threading.TIMEOUT_MAX if seconds is None else max(min(seconds, 1.0), _SOON)):
            seconds, last = left(deadline), left(limit)
            if seconds == 0 and (self.waits_for_room or last == 0):
                raise Timeout("another thread is using the queue")
        return self._owner


class _Here:
    """The state of a queue in one process. A forked child creates its own."""

    def __init__(self, address: Address, capacity: int | None, receiver: Receiver | None) -> None:
        self.process = os.getpid()
        self.gets, self.puts = _Turns(), _Turns()
        self.is_closed = False
        self.sender = Sender(address, capacity, receiver)


class _Queue:
    def __init__(self, *, capacity: int | None, copy: bool) -> None:
        self._address = Address.new()
        self._capacity, self._copy = capacity, copy
        self._receiver: Receiver | None = Receiver(self._address, copy=copy)
        self._state: _Here | None = None
        _made_here[self._address] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self._address, self._capacity, self._copy)

    def _here(self) -> _Here:
        state = self._state
        if state is None or state.process != os.getpid():
            receiver = self._receiver if self._address.is_ours() else None
            # Concurrent threads of a process must share one state.
            with _beginning:
                made = _Here(self._address, self._capacity, receiver)
                # Another thread, or a `__del__` that ran on this thread, may have created the state already.
                if self._state is None or self._state.process != os.getpid():
                    self._state = made
                state = self._state
        if state.is_closed:
            raise ValueError("the queue is closed")
        return state

    def _receiving(self) -> Receiver:
        if self._receiver is None or not self._address.is_ours():
            words = f"only the process that created the queue, {self._address.owner}, gets from it: create one queue for each process that gets"
            raise NotPermitted(words)
        return self._receiver

    def _put(self, obj: object, deadline: float | None) -> None:
        here = self._here()
        # Pickling runs code of the object. That code may also call `put`.
        parted = Parted(obj)
        with here.puts.held(deadline):
            outer = here.puts.waits_for_room
            try:
                here.sender.put(parted, deadline, here.puts)
            finally:
                here.puts.waits_for_room = outer

    def _get(self, deadline: float | None) -> Any:
        receiver, here = self._receiving(), self._here()
        here.gets.not_again()
        with here.gets.held(deadline):
            return receiver.get(deadline)

    def empty(self) -> bool:
        """Returns True if no item is available now. The first items of a process that connects at this moment do not count. Only in the process
        that gets."""
        receiver, here = self._receiving(), self._here()
        here.gets.not_again()
        with here.gets.held(None):
            return receiver.is_empty()

    def departed(self) -> tuple[Departed, ...]:
        """Returns the processes that ended without closing, for example because they were killed, if a `get` or `empty` has noticed their
        end. Their items were received, except for one that they were putting. Only in the process that gets."""
        return self._receiving().departed()

    def close(self) -> None:
        """Closes the queue. In the process that gets, remaining items are lost, and every later `put` in other processes raises Closed.
        Raises RuntimeError while another thread of this process puts, and inside of a `get` of this thread."""
        try:
            here = self._here()
        except ValueError:
            return
        receiver = self._receiver if self._address.is_ours() else None
        if receiver is not None:
            here.gets.not_again()
        here.sender.close()
        here.is_closed = True
        if receiver is not None:
            # Ends a waiting `get` of another thread. `held` then waits for that thread.
            receiver.stop()
            with here.gets.held(None):
                receiver.close()


_beginning = threading.RLock()
os.register_at_fork(after_in_child=lambda: globals().update(_beginning=threading.RLock()))


def _again(kind: type[_Queue], address: Address, capacity: int | None, copy: bool) -> _Queue:
    """Unpickles a queue in any process."""
    found = _made_here.get(address) if address.is_ours() else None
    if found is not None:
        return found
    made = kind.__new__(kind)
    made._address, made._capacity, made._copy = address, capacity, copy
    made._receiver, made._state = None, None
    return made


class SimpleQueue(_Queue):
    """Like `multiprocessing.SimpleQueue`: `put`, `get`, `empty`, `close`. The options are those of `Queue`."""

    def __init__(self, *, capacity: int | None = None, copy: bool = True, ctx: object = None) -> None:
        super().__init__(capacity=capacity, copy=copy)

    def put(self, obj: object) -> None:
        """Waits for room and puts an item. Raises PeerDied if the process that gets was killed, and Closed if it closed the queue."""
        self._put(obj, None)

    def get(self) -> Any:
        """Waits for the next item and returns it."""
        return self._get(None)


class Queue(_Queue):
    """Like `multiprocessing.Queue`, with one process that gets: the one that creates it. It can be pickled at any time, also for running
    processes.

    Each process that puts has a ring, created at its first `put`. Items stay available in the ring after that process has ended.
    `capacity` is the size of each ring in bytes. Without it the ring has room for four items like the first one, at least 1 MiB, and a
    larger item creates a larger ring, up to 1 GiB. A `put` waits while its ring is full. With `copy` (the default) items are copied, and
    arrays in them are writable. With `copy=False` arrays stay in the ring, read-only, and their room is released when they are freed.
    """

    def __init__(
        self, maxsize: int = 0, *, capacity: int | None = None, copy: bool = True, ctx: object = None
    ) -> None:
        if maxsize > 0:
            _absent("maxsize", "a put waits while its ring is full; the ring is limited in bytes (`capacity`), not in items")
        super().__init__(capacity=capacity, copy=copy)

    def put(self, obj: object, block: bool = True, timeout: float | None = None) -> None:
        """Puts an item, which has been pickled and copied when this returns. Raises Full if the ring had no room within `timeout` seconds.
        Raises PeerDied if the process that gets was killed, and Closed if it closed the queue. Items that it had not received are then
        lost."""
        try:
            self._put(obj, _until(block, timeout))
        except Timeout as error:
            raise Full from error

    def put_nowait(self, obj: object) -> None:
        """`put` without waiting."""
        self.put(obj, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Returns the next item of any process. Raises Empty if none arrived within `timeout` seconds. Items of one process arrive in
        order."""
        try:
            return self._get(_until(block, timeout))
        except Timeout as error:
            raise Empty from error

    def get_nowait(self) -> Any:
        """`get` without waiting."""
        return self.get(block=False)

    def join_thread(self) -> None:
        """Does nothing: there is no feeder thread, and items are in shared memory when `put` returns."""

    def cancel_join_thread(self) -> None:
        """Does nothing, like `join_thread`."""

    def qsize(self) -> int:
        """Raises NotImplementedError."""
        _absent("qsize", "items are not counted; use `empty`")

    def full(self) -> bool:
        """Raises NotImplementedError."""
        _absent("full", "an item fits or not, depending on its size; use `put` with a timeout")


def JoinableQueue(maxsize: int = 0, *, ctx: object = None) -> NoReturn:
    """Raises NotImplementedError."""
    _absent("JoinableQueue", "receivers do not report that they are done with an item (task_done, join)")


def Pipe(duplex: bool = True) -> NoReturn:
    """Raises NotImplementedError."""
    _absent("Pipe", "only the process that created a queue gets from it; create one queue for each direction, or use thalweg.offer and take")


def _until(block: bool, timeout: float | None) -> float | None:
    if not block:
        return time.monotonic()
    return None if timeout is None else time.monotonic() + max(timeout, 0.0)
