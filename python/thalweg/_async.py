"""The ends of a channel in an event loop: asyncio's or trio's, and so anyio's with either.

Messages are waited for by the descriptor of the channel alone. Only the meeting of the two processes has a thread, once
for each channel and for as long as the other takes to answer.
"""

from __future__ import annotations

import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from thalweg import _native
from thalweg._errors import Closed, Error, PeerDied, Timeout, made
from thalweg._loop import Meeting, is_readable, later, readable, sleep
from thalweg._native import Broadcast, Consumer, Mpsc, Producer
from thalweg._objects import Parted

_T = TypeVar("_T")
_End = TypeVar("_End", Consumer, Mpsc)
_Out = TypeVar("_Out", Producer, Broadcast)

#: As long as the channel itself has patience for a meeting, in seconds.
_PATIENCE = 5.0
#: Between two looks whether somebody offers by now, in seconds.
_AGAIN = 0.01
#: Messages that are there already, before other tasks have their turn.
_TURN = 16
#: Between two looks at a channel that is silent, in seconds. A child of a process that was killed may keep its descriptor
#: open: then no descriptor tells of the death, and a look does.
_LOOK = 1.0
#: A link that a cancelled call made is kept for the next call for this long, in seconds: a caller with a short timeout meets
#: the other side too. Longer, and the sender would wait for a receiver that is not receiving.
_KEPT = 1.0


class _Async(ABC):
    """What both ends have."""

    def __init__(self) -> None:
        self._meeting: Meeting | None = None
        self._is_open = False
        self._is_closed = False
        self._is_used = False
        self._turns = 0

    @abstractmethod
    def close(self) -> None:
        """Says goodbye."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One task at a time, as one thread at a time; the descriptor has one reader."""
        if self._is_closed:
            raise ValueError("this end is closed")
        if self._is_used:
            raise RuntimeError("this end is in use by another task; give each task an end of its own, or a lock")
        self._is_used = True
        try:
            yield
        finally:
            self._is_used = False

    async def _turn(self) -> None:
        """Other tasks run too where messages come, or there is room, without end. Before anything was received or sent."""
        self._turns += 1
        if self._turns % _TURN == 0:
            await sleep(0)

    async def _met(self, end: Producer | Consumer, meet: Callable[[], None]) -> Exception | None:
        """What came of a meeting, which is begun unless one is under way."""
        if self._meeting is None:
            self._meeting = Meeting(end, meet)
        meeting = self._meeting
        await meeting.over()
        self._meeting = None
        self._is_open = meeting.error is None
        return meeting.error

    def _close(self, end: Producer | Consumer | None) -> None:
        if self._is_used:
            # Its descriptor would be gone from under the loop, and the task would wait for ever.
            raise RuntimeError("this end is in use by another task: cancel that first")
        self._is_closed = True
        if self._meeting is not None:
            self._meeting.leave()
        elif end is not None:
            end.close()


class _Receives(ABC, Generic[_End]):
    """The calls of every end that receives."""

    @abstractmethod
    async def _next(self, receive: Callable[[_End], _T]) -> _T:
        """Waits until `receive` returns, and returns its result."""

    async def receive(self) -> Any:
        """Waits for the next array and returns it, as `Consumer.receive`."""
        return await self._next(lambda end: end.receive(timeout=0))

    async def receive_object(self) -> Any:
        """Waits for the next object and returns it, as `Consumer.receive_object`."""
        return await self._next(lambda end: end.receive_object(timeout=0))

    async def receive_bytes(self) -> bytes:
        """Waits for the next message and returns it as bytes, as `Consumer.receive_bytes`."""
        return await self._next(lambda end: end.receive_bytes(timeout=0))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None


class _Sends(ABC, Generic[_Out]):
    """The calls of every end that sends."""

    @abstractmethod
    async def _sent(self, size: int, send: Callable[[_Out], None]) -> None:
        """Waits until `send` succeeds. `size` is the number of bytes for which the ring is created."""

    async def send(self, obj: object) -> None:
        """Sends an array, as `Producer.send`, with its contents at the time when the ring has room."""
        await self._sent(_size(obj), lambda end: end.send(obj, timeout=0))

    async def send_object(self, obj: object) -> None:
        """Sends an object, as `Producer.send_object`. It is pickled now; its arrays are copied when the ring has room."""
        parted = Parted(obj)
        await self._sent(len(parted), lambda end: end.send_object(parted, timeout=0))

    async def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes, as `Producer.send_bytes`."""
        await self._sent(memoryview(data).nbytes, lambda end: end.send_bytes(data, timeout=0))


class AsyncConsumer(_Receives[Consumer], _Async):
    """The receiving end of a channel in an event loop, made by `take_async` or `subscribe_async`. `async for` receives arrays until the other side
    says goodbye; PeerDied if it ended without.

    A task that is cancelled while it waits loses no message: the next call receives it. So timeouts are those of the
    loop: `asyncio.timeout`, `anyio.fail_after`.
    """

    def __init__(
        self, name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None, subscribes: bool = False
    ) -> None:
        super().__init__()
        self._path = str(_native.address(name))
        self._over = partial(_native.take_over, copy=copy, trusted=trusted, hold=hold, subscribes=subscribes)
        self._end: Consumer | None = None
        #: When the last timer of `_keep` runs out.
        self._kept_until = 0.0

    async def receive_all(self, most: int | None = None) -> list[Any]:
        """All arrays that are there, as `Consumer.receive_all`."""
        return await self._next(lambda end: end.receive_all(most, timeout=0))

    async def _next(self, receive: Callable[[Consumer], _T]) -> _T:
        with self._alone():
            await self._turn()
            end = await self._opened()
            while True:
                # Where it returns nothing is waited for any more, so nothing that was received can be cancelled.
                with suppress(Timeout):
                    if end.is_ready():
                        return receive(end)
                if end.arm():
                    await readable(end.fileno(), _LOOK)

    async def _opened(self) -> Consumer:
        while not self._is_open:
            if self._end is None:
                self._end = await self._joined()
            end = self._end
            try:
                # It speaks when it has something to send, which may be long after it was joined.
                if self._meeting is None and not is_readable(end.fileno()):
                    await readable(end.fileno())
            except BaseException:
                self._keep()
                raise
            error = await self._met(end, partial(end.open, timeout=_PATIENCE))
            if error is not None:
                self._end = None
                if not isinstance(error, Closed | PeerDied | Timeout):
                    raise error
                # It went, or had its receiver: another may offer under the name.
                await sleep(_AGAIN)
        assert self._end is not None
        return self._end

    def _keep(self) -> None:
        """Closes the link after `_KEPT`, unless another call comes first."""
        now = time.monotonic()
        if now < self._kept_until:
            return
        self._kept_until = now + _KEPT
        weak, calls = weakref.ref(self), self._turns

        def check() -> None:
            if (end := weak()) is not None:
                end._let_go(calls)

        later(_KEPT, check)

    def _let_go(self, calls: int) -> None:
        self._kept_until = 0.0
        if self._end is None or self._is_open or self._is_used or self._meeting is not None:
            return
        if self._turns != calls:
            self._keep()
            return
        # The sender would wait for this one to answer, while another could receive.
        self._end.close()
        self._end = None

    async def _joined(self) -> Consumer:
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as joined:
                try:
                    joined.connect(self._path)
                    return self._over(joined)
                except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                    pass
                except Error:
                    raise
                except OSError as error:
                    raise made("Error", error.errno, f"connect {self._path}: {error.strerror}", 0, None) from None
            await sleep(_AGAIN)

    def close(self) -> None:
        """Says goodbye."""
        self._close(self._end)

    @property
    def received(self) -> int:
        """Messages received."""
        return self._end.received if self._end is not None and self._is_open else 0

    @property
    def missed(self) -> int:
        """Messages that a broadcast dropped for this end, as `Consumer.missed`."""
        return self._end.missed if self._end is not None and self._is_open else 0


class AsyncProducer(_Sends[Producer], _Async):
    """The sending end of a channel in an event loop, made by `offer_async`. What is cancelled while it waits for the other side, or for
    room, was not sent.
    """

    def __init__(self, name: str, *, capacity: int | None = None, checksums: bool = False) -> None:
        super().__init__()
        self._end = _native.offer(name, capacity=capacity, checksums=checksums, parts=False)

    async def send_all(self, objs: Iterable[object]) -> None:
        """Sends several arrays, as `Producer.send_all`. Of a call that is cancelled those may have been sent that there was room for:
        `sent` says how many."""
        left = list(objs)

        def send(end: Producer) -> None:
            try:
                end.send_all(left, timeout=0)
            except Timeout as error:
                del left[: error.moved]
                raise

        if left:
            await self._sent(_size(left[0]), send)

    async def _sent(self, size: int, send: Callable[[Producer], None]) -> None:
        with self._alone():
            await self._turn()
            end = self._end
            while not self._is_open:
                if self._meeting is None and not is_readable(end.fileno()):
                    await readable(end.fileno())
                error = await self._met(end, partial(end.open, size, timeout=_PATIENCE))
                # Who came went again: the next one.
                if error is not None and not isinstance(error, Closed | PeerDied | Timeout):
                    raise error
            while True:
                try:
                    return send(end)
                except Timeout:
                    if end.arm():
                        await readable(end.fileno(), _LOOK)

    def close(self) -> None:
        """Says goodbye: the other side receives what was sent, then nothing more."""
        self._close(self._end)

    @property
    def sent(self) -> int:
        """Messages sent."""
        return self._end.sent if self._is_open else 0


def _size(obj: Any) -> int:
    """Bytes of an array."""
    try:
        return memoryview(obj).nbytes
    except (TypeError, ValueError):
        # Dates have no buffer, and what cannot be sent at all is refused by `send`.
        return int(getattr(obj, "nbytes", 0))


def take_async(name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> AsyncConsumer:
    """Takes what is offered under a name, in an event loop; as `take` otherwise."""
    return AsyncConsumer(name, copy=copy, trusted=trusted, hold=hold)


def offer_async(name: str, *, capacity: int | None = None, checksums: bool = False) -> AsyncProducer:
    """Offers a channel under a name, in an event loop; as `offer` otherwise."""
    return AsyncProducer(name, capacity=capacity, checksums=checksums)
