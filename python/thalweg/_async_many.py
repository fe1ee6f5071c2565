"""Ends with several peers in an event loop. See `_async` for the ends of a single channel."""

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

#: Polling interval in seconds while a peer connects or stored messages are sent. No descriptor becomes readable when either
#: ends.
_SOON = 0.001


class _Many(_Async):
    """An end with several descriptors, which are polled through one epoll descriptor."""

    def __init__(self, end: Mpsc | Broadcast) -> None:
        super().__init__()
        self._many = end

    async def _news(self) -> None:
        # A new epoll set for each wait, because a closed descriptor stays in a set while a forked child has it open.
        with select.epoll() as poll:
            for descriptor in self._many.filenos():
                poll.register(descriptor, select.EPOLLIN)
            await readable(poll.fileno(), self._patience())

    def _patience(self) -> float:
        return _SOON if self._many.is_meeting else _LOOK

    def close(self) -> None:
        """Closes the channels to all peers."""
        if self._is_used:
            raise RuntimeError("this end of the channel is in use by another task: cancel that task first")
        self._is_closed = True
        self._many.close()


class AsyncMpsc(_Receives[Mpsc], _Many):
    """The receiving end of channels from several producers in an event loop, created by `gather_async`. `async for` receives
    arrays until the expected number of producers has left. A task that is cancelled while it waits loses no message.
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
                # No await follows a successful call, so a received message cannot be lost by a cancellation.
                with suppress(Timeout):
                    return receive(self._end)
                if self._end.arm():
                    await self._news()

    def departed(self) -> list[Any]:
        """The producers that ended without closing, like `Mpsc.departed`."""
        return self._end.departed()

    @property
    def received(self) -> int:
        """Number of messages received."""
        return self._end.received

    @property
    def producers(self) -> int:
        """Number of producers that are connected."""
        return self._end.producers

    @property
    def peer(self) -> int | None:
        """The process that sent the last message received."""
        return self._end.peer


class AsyncBroadcast(_Sends[Broadcast], _Many):
    """The end that sends to several subscribers in an event loop, created by `broadcast_async`. A `send` that is cancelled while
    it waits for room has reached no subscriber.
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
        """Waits until this many subscribers are connected."""
        with self._alone():
            while True:
                try:
                    return self._end.wait(subscribers, timeout=0)
                except Timeout:
                    # New subscribers make the listener readable.
                    await readable(self._end.filenos()[0], self._patience())

    async def flush(self) -> None:
        """Waits until every message in the `backlog` is in the rings of the slow subscribers."""
        with self._alone():
            while True:
                try:
                    return self._end.flush(timeout=0)
                except Timeout:
                    await sleep(_SOON)

    def departed(self) -> list[tuple[int, int, BaseException]]:
        """The subscribers that ended without closing, like `Broadcast.departed`."""
        return self._end.departed()

    @property
    def subscribers(self) -> int:
        """Number of subscribers that are not known to have left."""
        return self._end.subscribers

    @property
    def sent(self) -> int:
        """Number of messages sent."""
        return self._end.sent


def subscribe_async(name: str, *, copy: bool = False, trusted: bool = True, hold: int | None = None) -> AsyncConsumer:
    """Subscribes to the broadcast under a name, like `subscribe`, for an event loop."""
    return AsyncConsumer(name, copy=copy, trusted=trusted, hold=hold, subscribes=True)


def gather_async(
    name: str,
    *,
    producers: int | None = None,
    copy: bool = False,
    trusted: bool = True,
    hold: int | None = None,
) -> AsyncMpsc:
    """Receives from all processes that join under a name, like `gather`, for an event loop."""
    return AsyncMpsc(name, producers=producers, copy=copy, trusted=trusted, hold=hold)


def broadcast_async(
    name: str, *, backlog: int | None = None, capacity: int | None = None, checksums: bool = False
) -> AsyncBroadcast:
    """Sends to all processes that subscribe under a name, like `broadcast`, for an event loop."""
    return AsyncBroadcast(name, backlog=backlog, capacity=capacity, checksums=checksums)
