"""The ends of a channel in an event loop of asyncio or trio, and therefore of anyio.

Waiting for messages uses the descriptor of the channel only. The handshake of the two processes runs in a thread, once for
each channel.
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

#: Time limit of a handshake, as in the extension module, in seconds.
_PATIENCE = 5.0
#: Interval between attempts to connect, in seconds.
_AGAIN = 0.01
#: Number of calls after which other tasks may run, even if no call had to wait.
_TURN = 16
#: Interval between two checks of a silent channel, in seconds. If a child keeps the descriptor of a killed process open, no
#: descriptor becomes readable, and only a check detects the death.
_LOOK = 1.0
#: Time in seconds for which the link of a cancelled call is kept for the next call, so that callers with short timeouts can
#: connect. It is short, because the producer waits for this consumer during that time.
_KEPT = 1.0


class _Async(ABC):
    """Code shared by both ends."""

    def __init__(self) -> None:
        self._meeting: Meeting | None = None
        self._is_open = False
        self._is_closed = False
        self._is_used = False
        self._turns = 0

    @abstractmethod
    def close(self) -> None:
        """Closes the channel."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Restricts the end to one task at a time, because its descriptor can have one reader only."""
        if self._is_closed:
            raise ValueError("this end of the channel is closed")
        if self._is_used:
            raise RuntimeError("this end of the channel is in use by another task; give each task its own end, or use a lock")
        self._is_used = True
        try:
            yield
        finally:
            self._is_used = False

    async def _turn(self) -> None:
        """Lets other tasks run regularly, even if calls never have to wait. Callers await it before each receive or send."""
        self._turns += 1
        if self._turns % _TURN == 0:
            await sleep(0)

    async def _met(self, end: Producer | Consumer, meet: Callable[[], None]) -> Exception | None:
        """Starts the handshake if necessary, waits for it, and returns its error, if any."""
        if self._meeting is None:
            self._meeting = Meeting(end, meet)
        meeting = self._meeting
        await meeting.over()
        self._meeting = None
        self._is_open = meeting.error is None
        return meeting.error

    def _close(self, end: Producer | Consumer | None) -> None:
        if self._is_used:
            # The event loop would never wake a task that waits for a closed descriptor.
            raise RuntimeError("this end of the channel is in use by another task: cancel that task first")
        self._is_closed = True
        if self._meeting is not None:
            self._meeting.leave()
        elif end is not None:
            end.close()


class _Receives(ABC, Generic[_End]):
    """The calls of every end that receives."""

    @abstractmethod
    async def _next(self, receive: Callable[[_End], _T]) -> _T:
        """Repeats `receive`, which raises Timeout if no message is available, until it returns a result. Returns the
        result."""

    async def receive(self) -> Any:
        """Waits for the next array and returns it, like `Consumer.receive`."""
        return await self._next(lambda end: end.receive(timeout=0))

    async def receive_object(self) -> Any:
        """Waits for the next object and returns it, like `Consumer.receive_object`."""
        return await self._next(lambda end: end.receive_object(timeout=0))

    async def receive_bytes(self) -> bytes:
        """Waits for the next message and returns it as bytes, like `Consumer.receive_bytes`."""
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
        """Repeats `send`, which raises Timeout if the ring has no room, until it succeeds. If the ring does not exist yet,
        creates it for a message of `size` bytes."""

    async def send(self, obj: object) -> None:
        """Sends an array, like `Producer.send`. The array is copied when the ring has room, with its contents at that time."""
        await self._sent(_size(obj), lambda end: end.send(obj, timeout=0))

    async def send_object(self, obj: object) -> None:
        """Sends an object, like `Producer.send_object`. The object is pickled at the call, but its arrays are copied when the
        ring has room."""
        parted = Parted(obj)
        await self._sent(len(parted), lambda end: end.send_object(parted, timeout=0))

    async def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes, like `Producer.send_bytes`."""
        await self._sent(memoryview(data).nbytes, lambda end: end.send_bytes(data, timeout=0))


class AsyncConsumer(_Receives[Consumer], _Async):
    """The receiving end of a channel in an event loop, created by `take_async` or `subscribe_async`. `async for` receives
    arrays until the producer closes the channel. It raises PeerDied if the producer ends without closing it.

    If a task is cancelled while it waits, no message is lost: the next call receives it. To limit the waiting time, use the
    timeouts of the event loop, such as `asyncio.timeout` and `anyio.fail_after`.
    """

    def __init__(
        self, name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None, subscribes: bool = False
    ) -> None:
        super().__init__()
        self._path = str(_native.address(name))
        self._over = partial(_native.take_over, copy=copy, trusted=trusted, hold=hold, subscribes=subscribes)
        self._end: Consumer | None = None
        #: Time at which the last timer of `_keep` expires.
        self._kept_until = 0.0

    async def receive_all(self, most: int | None = None) -> list[Any]:
        """Waits for the first array, and returns all that are available, like `Consumer.receive_all`."""
        return await self._next(lambda end: end.receive_all(most, timeout=0))

    async def _next(self, receive: Callable[[Consumer], _T]) -> _T:
        with self._alone():
            await self._turn()
            end = await self._opened()
            while True:
                # No await follows a successful call, so a received message cannot be lost by a cancellation.
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
                # The producer begins the handshake when it has data, possibly long after the connection.
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
                # The producer is gone or already has a consumer. Another process may offer a channel under the name.
                await sleep(_AGAIN)
        assert self._end is not None
        return self._end

    def _keep(self) -> None:
        """Closes the link after `_KEPT` seconds, unless another call is made before."""
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
        # Releases the link, because the producer would otherwise wait for this consumer, although another one could receive.
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
        """Closes the channel."""
        self._close(self._end)

    @property
    def received(self) -> int:
        """Number of messages received."""
        return self._end.received if self._end is not None and self._is_open else 0

    @property
    def missed(self) -> int:
        """Number of messages that the broadcast dropped, like `Consumer.missed`."""
        return self._end.missed if self._end is not None and self._is_open else 0


class AsyncProducer(_Sends[Producer], _Async):
    """The sending end of a channel in an event loop, created by `offer_async`. If a call is cancelled while it waits for the
    consumer or for room, it has sent nothing. `send_all` is an exception.
    """

    def __init__(self, name: str, *, capacity: int | None = None, checksums: bool = False) -> None:
        super().__init__()
        self._end = _native.offer(name, capacity=capacity, checksums=checksums, parts=False)

    async def send_all(self, objs: Iterable[object]) -> None:
        """Sends several arrays, like `Producer.send_all`. A call that is cancelled may have sent some of them: see `sent`."""
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
                # If the consumer has left, this waits for the next one.
                if error is not None and not isinstance(error, Closed | PeerDied | Timeout):
                    raise error
            while True:
                try:
                    return send(end)
                except Timeout:
                    if end.arm():
                        await readable(end.fileno(), _LOOK)

    def close(self) -> None:
        """Closes the channel. The consumer receives everything that was sent, then Closed."""
        self._close(self._end)

    @property
    def sent(self) -> int:
        """Number of messages sent."""
        return self._end.sent if self._is_open else 0


def _size(obj: Any) -> int:
    """Returns the size of an array in bytes."""
    try:
        return memoryview(obj).nbytes
    except (TypeError, ValueError):
        # Arrays of dates have no buffer. `send` rejects objects that cannot be sent.
        return int(getattr(obj, "nbytes", 0))


def take_async(name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> AsyncConsumer:
    """Connects to the channel that is offered under a name, like `take`, for an event loop."""
    return AsyncConsumer(name, copy=copy, trusted=trusted, hold=hold)


def offer_async(name: str, *, capacity: int | None = None, checksums: bool = False) -> AsyncProducer:
    """Offers a channel under a name, like `offer`, for an event loop."""
    return AsyncProducer(name, capacity=capacity, checksums=checksums)
