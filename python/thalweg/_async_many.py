"""One to many and many to one in an event loop, as `_async` has the two ends of one channel."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from thalweg import _native
from thalweg._async import _LOOK, AsyncConsumer, _Async, _Receives, _Sends
from thalweg._errors import Timeout
from thalweg._loop import readable, sleep
from thalweg._native import Broadcast, Mpsc

_T = TypeVar("_T")

#: While somebody is about to be let in, of which no descriptor tells, and while what is kept moves on, in seconds.
_SOON = 0.001


class _Many(_Async):
    """An end with several descriptors: they are polled through one, that of an epoll."""

    def __init__(self, end: Mpsc | Broadcast) -> None:
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


class AsyncMpsc(_Receives[Mpsc], _Many):
    """The receiving end of many channels in an event loop, made by `gather_async`. `async for` receives arrays until as many senders
    have gone as were said. A task that is cancelled while it waits loses no message.
    """

    def __init__(
        self,
        name: str,
        *,
        producers: int | None = None,
        copy: bool = False,
        trusted: bool = True,
        hold: int | None = None,
    ) -> None:
        self._end = _native.gather(name, producers=producers, copy=copy, trusted=trusted, hold=hold)
        super().__init__(self._end)

    async def _next(self, receive: Callable[[Mpsc], _T]) -> _T:
        with self._alone():
            await self._turn()
            while True:
                # Where it returns nothing is waited for any more, so nothing that was received can be cancelled.
                with suppress(Timeout):
                    return receive(self._end)
                if self._end.arm():
                    await self._news()

    def departed(self) -> list[Any]:
        """Senders that have ended without a goodbye, as `Mpsc.departed`."""
        return self._end.departed()

    @property
    def received(self) -> int:
        """Messages received."""
        return self._end.received

    @property
    def producers(self) -> int:
        """Senders that are there."""
        return self._end.producers

    @property
    def peer(self) -> int | None:
        """The process that sent the message received last."""
        return self._end.peer


class AsyncBroadcast(_Sends[Broadcast], _Many):
    """The end that sends to many in an event loop, made by `broadcast_async`. A `send` that is cancelled while it waits for room has
    reached nobody.
    """

    def __init__(
        self, name: str, *, backlog: int | None = None, capacity: int | None = None, checksums: bool = False
    ) -> None:
        self._end = _native.broadcast(name, backlog=backlog, capacity=capacity, checksums=checksums)
        super().__init__(self._end)

    async def _sent(self, size: int, send: Callable[[Broadcast], None]) -> None:
        with self._alone():
            await self._turn()
            while True:
                try:
                    return send(self._end)
                except Timeout:
                    if self._end.arm():
                        await self._news()

    async def wait(self, subscribers: int = 1) -> None:
        """Waits until as many receivers are there."""
        with self._alone():
            while True:
                try:
                    return self._end.wait(subscribers, timeout=0)
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
    def subscribers(self) -> int:
        """Receivers that are there, as far as is known."""
        return self._end.subscribers

    @property
    def sent(self) -> int:
        """Messages sent."""
        return self._end.sent


def subscribe_async(name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> AsyncConsumer:
    """Takes what is broadcast under a name, in an event loop; as `subscribe` otherwise."""
    return AsyncConsumer(name, copy=copy, trusted=trusted, hold=hold, subscribes=True)


def gather_async(
    name: str,
    *,
    producers: int | None = None,
    copy: bool = False,
    trusted: bool = True,
    hold: int | None = None,
) -> AsyncMpsc:
    """Receives from everybody who joins under a name, in an event loop; as `gather` otherwise."""
    return AsyncMpsc(name, producers=producers, copy=copy, trusted=trusted, hold=hold)


def broadcast_async(
    name: str, *, backlog: int | None = None, capacity: int | None = None, checksums: bool = False
) -> AsyncBroadcast:
    """Sends to whoever subscribes under a name, in an event loop; as `broadcast` otherwise."""
    return AsyncBroadcast(name, backlog=backlog, capacity=capacity, checksums=checksums)
