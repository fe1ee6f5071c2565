"""What runs the workers of a fleet: any `concurrent.futures.Executor`, or a Client of Dask, which is one with more to say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from thalweg._member import Orders, Sights, hello, move

#: Parts of the work that are on their way, for each worker: one that it does, and one that is there when another comes.
_EACH = 2
#: How often a scheduler is asked who is there, in seconds.
_ASKED = 1.0


class Room(NamedTuple):
    """How much an engine can do."""

    #: Workers that are at work at the same time.
    at_once: int
    #: Parts of the work that are to be on their way.
    flying: int
    #: Threads for each of them.
    threads: int


class Gone(Exception):
    """There will be no worker any more."""


class Pool:
    """An Executor."""

    def __init__(self, executor: Executor, own: bool = False, threads: int = 1) -> None:
        self.executor, self.own, self.threads = executor, own, threads

    def room(self) -> Room | str:
        """What it can do now, or why nothing."""
        most = getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1
        return Room(most, most if self.own else most * _EACH, self.threads)

    def submit(self, orders: Orders) -> Future[dict[str, Any]]:
        return self._asked(lambda: self.executor.submit(move, orders))

    def troubles(self, sights: Sights) -> list[str]:
        """Who cannot take part. Which process answers is not ours to say; all are on one machine, or the engine's word is taken."""
        room = self.room()
        count = room.at_once if isinstance(room, Room) else 1
        asked = [self._asked(lambda: self.executor.submit(hello, sights)) for _ in range(count)]
        wait(asked)
        return sorted({f"{host}: {missed}" for host, _, missed in (one.result() for one in asked) if missed})

    def rebuild(self) -> bool:
        """Makes it anew, as it broke; False if it cannot."""
        old = self.executor
        if self.own or not isinstance(old, ProcessPoolExecutor):
            return False
        known: dict[str, Any] = vars(old)
        names = {"max_workers", "mp_context", "initializer", "initargs", "max_tasks_per_child"}
        options = {name: known[f"_{name}"] for name in names if known.get(f"_{name}") is not None}
        self.executor, self.own = ProcessPoolExecutor(**options), True
        return True

    def cancel(self, flying: Iterable[Future[Any]]) -> None:
        """What has not begun need not."""
        for future in flying:
            future.cancel()

    def close(self) -> None:
        if self.own:
            self.executor.shutdown(cancel_futures=True)

    @staticmethod
    def _asked(submit: Callable[[], Future[Any]]) -> Future[Any]:
        try:
            return submit()
        except BrokenExecutor as error:
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken
        except RuntimeError as error:
            raise Gone(f"the executor takes no more work: {error}") from error


class Dask:
    """A Client of Dask. No other keyword than these two is given: it refuses most."""

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise TypeError("copy_tree waits: it takes a Client that is not asynchronous")
        self.client = client
        self.executor: Executor = client.get_executor(pure=False, retries=2)
        self._room: tuple[float, Room | str] = (float("-inf"), "")

    def room(self) -> Room | str:
        status = self.client.status
        if status in ("closed", "closing"):
            raise Gone("the Client was closed, or has lost its scheduler")
        if status != "running":
            return "the scheduler does not answer"
        asked, room = self._room
        if time.monotonic() >= asked + _ASKED:
            room = self._looked()
            self._room = (time.monotonic(), room)
        return room

    def _looked(self) -> Room | str:
        try:
            threads = sorted(self.client.nthreads().values())
        except OSError as error:
            return f"the scheduler does not answer: {error}"
        if not threads:
            return "no worker is there"
        each = [min(_EACH, most) for most in threads]
        middle = len(threads) // 2
        return Room(sum(each), len(threads) * _EACH, max(1, threads[middle] // each[middle]))

    def submit(self, orders: Orders) -> Future[dict[str, Any]]:
        try:
            return self.executor.submit(move, orders)
        except Exception as error:
            raise Gone(f"the Client takes no more work: {error}") from error

    def troubles(self, sights: Sights) -> list[str]:
        self.room()
        try:
            answers: dict[str, Any] = self.client.run(hello, sights, on_error="return")
        except OSError as error:
            raise Gone(f"the scheduler does not answer: {error}") from error
        found = []
        for address, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                found.append(f"{address}: {type(answer).__name__}: {answer}")
            elif answer[2]:
                found.append(f"{address} ({answer[0]}, process {answer[1]}): {answer[2]}")
        return found

    def rebuild(self) -> bool:
        return False

    def cancel(self, flying: Iterable[Future[Any]]) -> None:
        """Nothing: Dask logs a traceback for each future that was cancelled here and ends all the same. It ends at once."""

    def close(self) -> None:
        """The Client is its maker's."""


def is_client(executor: object) -> bool:
    """Whether this is a Client of Dask. It is imported by who has one."""
    kind = type(executor)
    return kind.__module__.startswith("distributed.") and hasattr(executor, "get_executor")


def engine_of(executor: Any) -> Pool | Dask:
    if executor is None:
        # One worker with as many threads as there are processors.
        return Pool(ThreadPoolExecutor(1, "thalweg-fleet"), own=True, threads=0)
    if is_client(executor):
        return Dask(executor)
    if isinstance(executor, Executor):
        # What `get_executor` gives out has its Client, who knows more.
        client = getattr(executor, "_client", None)
        return Dask(client) if is_client(client) else Pool(executor)
    kind = type(executor).__name__
    raise TypeError(f"executor: a concurrent.futures.Executor, a Client of dask.distributed, or None; not {kind}")
