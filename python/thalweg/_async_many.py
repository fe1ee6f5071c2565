"""One to many and many to one in an event loop, as `_async` has the two ends of one channel."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from thalweg import _native
from thalweg._async import _LOOK, AsyncTake, _Async, _Receives
from thalweg._errors import Timeout
from thalweg._loop import readable, sleep
from thalweg._native import Broadcast, Gather

_T = TypeVar("_T")

#: While somebody is about to be let in, of which no descriptor tells, and while what is kept moves on, in seconds.
_SOON = 0.001


class _Many(_Async):
    """An end with several descriptors: they are polled through one, that of an epoll."""

    def __init__(self, end: Gather | Broadcast) -> None:
        super().__init__()
        self._many = end

    async def _news(self) -> None:
        # Anew each time: what was closed since stays in one where a child made by fork has it still.
        with select.epoll() as poll:
            for descriptor in self._many.filenos():
                poll.register(descriptor, select.EPOLLIN)
            await readable(poll.fileno(), self._patience())

    def _patience(self) -> float:
        return _SOON if self._many.is_meeting else _LOOK

    def close(self) -> None:
        """Says goodbye to all."""
        if self._is_used:
            raise RuntimeError("this end is in use by another task: cancel that first")
        self._is_closed = True
        self._many.close()


class AsyncGather(_Receives, _Many):
    """The receiving end of many channels in an event loop, made by `gather_async`. `async for` receives arrays until as many senders
    have gone as were said. A task that is cancelled while it waits loses no message.
    """

    def __init__(
        self,
        name: str,
        *,
        senders: int | None = None,
        copy: bool = False,
        trusted: bool = True,
        hold: int | None = None,
    ) -> None:
        self._end = _native.gather(name, senders=senders, copy=copy, trusted=trusted, hold=hold)
        super().__init__(self._end)

    async def receive(self) -> Any:
        """The next array of any sender, as `Gather.receive`."""
        return await self._next(lambda: self._end.receive(timeout=0))

    async def receive_object(self) -> Any:
        """The next object, as `Gather.receive_object`."""
        return await self._next(lambda: self._end.receive_object(timeout=0))

    async def receive_bytes(self) -> bytes:
        """The next message as bytes, as `Gather.receive_bytes`."""
        return await self._next(lambda: self._end.receive_bytes(timeout=0))

    async def _next(self, receive: Callable[[], _T]) -> _T:
        with self._alone():
            await self._turn()
            while True:
                # Where it returns nothing is waited for any more, so nothing that was received can be cancelled.
                with suppress(Timeout):
                    return receive()
                if self._end.arm():
                    await self._news()

    def departed(self) -> list[Any]:
        """Senders that have ended without a goodbye, as `Gather.departed`."""
        return self._end.departed()

    @property
    def received(self) -> int:
        """Messages received."""
        return self._end.received

    @property
    def senders(self) -> int:
        """Senders that are there."""
        return self._end.senders

    @property
    def peer(self) -> int | None:
        """The process that sent the message received last."""
        return self._end.peer


class AsyncBroadcast(_Many):
    """The end that sends to many in an event loop, made by `broadcast_async`. A `send` that is cancelled while it waits for room has
    reached nobody.
    """

    def __init__(
        self, name: str, *, backlog: int | None = None, capacity: int | None = None, checksums: bool = False
    ) -> None:
        self._end = _native.broadcast(name, backlog=backlog, capacity=capacity, checksums=checksums)
        super().__init__(self._end)

    async def send(self, obj: object) -> None:
        """Sends an array, as `Broadcast.send`."""
        await self._sent(lambda: self._end.send(obj, timeout=0))

    async def send_object(self, obj: object) -> None:
        """Sends an object, as `Broadcast.send_object`."""
        await self._sent(lambda: self._end.send_object(obj, timeout=0))

    async def send_bytes(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes, as `Broadcast.send_bytes`."""
        await self._sent(lambda: self._end.send_bytes(data, timeout=0))

    async def _sent(self, send: Callable[[], None]) -> None:
        with self._alone():
            await self._turn()
            while True:
                try:
                    return send()
                except Timeout:
                    if self._end.arm():
                        await self._news()

    async def wait(self, receivers: int = 1) -> None:
        """Waits until as many receivers are there."""
        with self._alone():
            while True:
                try:
                    return self._end.wait(receivers, timeout=0)
                except Timeout:
                    # Who comes does so at the listener.
                    await readable(self._end.filenos()[0], self._patience())

    async def flush(self) -> None:
        """Waits until nothing is kept here any more for receivers that were too slow."""
        with self._alone():
            while True:
                try:
                    return self._end.flush(timeout=0)
                except Timeout:
                    await sleep(_SOON)

    def departed(self) -> list[tuple[int, int, BaseException]]:
        """Receivers that have ended without a goodbye, as `Broadcast.departed`."""
        return self._end.departed()

    @property
    def receivers(self) -> int:
        """Receivers that are there, as far as is known."""
        return self._end.receivers

    @property
    def sent(self) -> int:
        """Messages sent."""
        return self._end.sent


def subscribe_async(name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> AsyncTake:
    """Takes what is broadcast under a name, in an event loop; as `subscribe` otherwise."""
    return AsyncTake(name, copy=copy, trusted=trusted, hold=hold, subscribes=True)


def gather_async(
    name: str,
    *,
    senders: int | None = None,
    copy: bool = False,
    trusted: bool = True,
    hold: int | None = None,
) -> AsyncGather:
    """Receives from everybody who joins under a name, in an event loop; as `gather` otherwise."""
    return AsyncGather(name, senders=senders, copy=copy, trusted=trusted, hold=hold)


def broadcast_async(
    name: str, *, backlog: int | None = None, capacity: int | None = None, checksums: bool = False
) -> AsyncBroadcast:
    """Sends to whoever subscribes under a name, in an event loop; as `broadcast` otherwise."""
    return AsyncBroadcast(name, backlog=backlog, capacity=capacity, checksums=checksums)
