"""Functions that work in asyncio and in trio: sleep, timers, waiting for a descriptor and for a thread."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

from thalweg._native import Consumer, Producer


def _trio() -> Any:
    """Returns the module trio if it runs this task."""
    trio = sys.modules.get("trio")
    try:
        if trio is not None:
            trio.lowlevel.current_task()
    except RuntimeError:
        return None
    return trio


async def sleep(seconds: float) -> None:
    if trio := _trio():
        await trio.sleep(seconds)
        return
    # Imports asyncio here, because the import is slow and most programs have no event loop.
    import asyncio

    await asyncio.sleep(seconds)


def later(seconds: float, call: Callable[[], None]) -> None:
    """Calls `call` in the running event loop after this time, unless the loop ends before."""
    if trio := _trio():

        async def wait() -> None:
            await trio.sleep(seconds)
            call()

        trio.lowlevel.spawn_system_task(wait, name="thalweg-later")
        return
    import asyncio

    asyncio.get_running_loop().call_later(seconds, call)


def is_readable(descriptor: int) -> bool:
    """Returns True if a descriptor is readable now. Callers check this before `readable`, because with a timeout of 0 the event
    loop cancels a task that awaits `readable` before the task can make progress."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def readable(descriptor: int, most: float | None = None) -> None:
    """Waits until a descriptor is readable, at most `most` seconds."""
    if trio := _trio():
        with trio.move_on_after(float("inf") if most is None else most):
            await trio.lowlevel.wait_readable(descriptor)
        return
    import asyncio

    loop = asyncio.get_running_loop()
    news: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        # The future may already be done, because asyncio calls this repeatedly while the descriptor is readable.
        if not news.done():
            news.set_result(None)

    timer = None if most is None else loop.call_later(most, come)
    loop.add_reader(descriptor, come)
    try:
        await news
    finally:
        loop.remove_reader(descriptor)
        if timer is not None:
            timer.cancel()


class Meeting:
    """A handshake that runs in a thread. If a task that waits for it is cancelled, the next call can wait for it again."""

    def __init__(self, end: Producer | Consumer, meet: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._end, self._meet = end, meet
        self._lock, self._is_over, self._is_left = threading.Lock(), False, False
        self._told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # The running thread refers to this object, so the descriptor stays open until the thread has written to it. The thread
        # is not a daemon, because it ends soon.
        threading.Thread(target=self._run, name="thalweg-meet").start()

    def _run(self) -> None:
        try:
            self._meet()
        except Exception as error:
            self.error = error
        finally:
            with self._lock:
                self._is_over = True
            if self._is_left:
                self._end.close()
            os.eventfd_write(self._told, 1)

    def leave(self) -> None:
        """Closes the end. If the thread still uses the end, the thread closes it."""
        with self._lock:
            self._is_left = True
            if not self._is_over:
                return
        self._end.close()

    async def over(self) -> None:
        if not is_readable(self._told):
            await readable(self._told)

    def __del__(self) -> None:
        os.close(self._told)
