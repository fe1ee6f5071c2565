"""Engines that run the workers of a fleet: any `concurrent.futures.Executor`, or a Client of Dask."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from thalweg._member import Orders, Sights, hello, move

#: Number of submitted parts of the work for each worker: one in progress and one queued.
_EACH = 2
#: Interval in seconds at which `Dask.room` asks the scheduler for its workers.
_ASKED = 1.0


class Room(NamedTuple):
    """The capacity of an engine."""

    #: Number of workers that run at the same time.
    at_once: int
    #: Number of parts of the work to be submitted at the same time.
    flying: int
    #: Number of threads of each worker.
    threads: int


class Gone(Exception):
    """The engine is closed or lost, so it can run no more work."""


class Pool:
    """An engine that runs work in an Executor."""

    def __init__(self, executor: Executor, own: bool = False, threads: int = 1) -> None:
        self.executor, self.own, self.threads = executor, own, threads

    def room(self) -> Room | str:
        """Returns the current capacity, or the reason why it is zero."""
        most = getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1
        return Room(most, most if self.own else most * _EACH, self.threads)

    def submit(self, orders: Orders) -> Future[dict[str, Any]]:
        return self._asked(lambda: self.executor.submit(move, orders))

    def troubles(self, sights: Sights) -> list[str]:
        """Returns the workers that cannot take part, with reasons. The executor chooses the process for each check, so the
        result assumes that all its processes are alike."""
        room = self.room()
        count = room.at_once if isinstance(room, Room) else 1
        asked = [self._asked(lambda: self.executor.submit(hello, sights)) for _ in range(count)]
        wait(asked)
        return sorted({f"{host}: {missed}" for host, _, missed in (one.result() for one in asked) if missed})

    def rebuild(self) -> bool:
        """Recreates a broken executor. Returns False if that is not possible."""
        old = self.executor
        if self.own or not isinstance(old, ProcessPoolExecutor):
            return False
        known: dict[str, Any] = vars(old)
        names = {"max_workers", "mp_context", "initializer", "initargs", "max_tasks_per_child"}
        options = {name: known[f"_{name}"] for name in names if known.get(f"_{name}") is not None}
        self.executor, self.own = ProcessPoolExecutor(**options), True
        return True

    def cancel(self, flying: Iterable[Future[Any]]) -> None:
        """Cancels the parts that have not begun."""
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
            raise Gone(f"the executor accepts no more work: {error}") from error


class Dask:
    """An engine that runs work through a Client of Dask."""

    def __init__(self, client: Any) -> None:
        if client.asynchronous:
            raise TypeError("copy_tree blocks, so it needs a Client that is not asynchronous")
        self.client = client
        self.executor: Executor = client.get_executor(pure=False, retries=2)
        self._room: tuple[float, Room | str] = (float("-inf"), "")

    def room(self) -> Room | str:
        status = self.client.status
        if status in ("closed", "closing"):
            raise Gone("the Client was closed, or lost its scheduler")
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
            return "no worker is available"
        each = [min(_EACH, most) for most in threads]
        middle = len(threads) // 2
        return Room(sum(each), len(threads) * _EACH, max(1, threads[middle] // each[middle]))

    def submit(self, orders: Orders) -> Future[dict[str, Any]]:
        try:
            return self.executor.submit(move, orders)
        except Exception as error:
            raise Gone(f"the Client accepts no more work: {error}") from error

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
        """Does nothing, because Dask would log a traceback for each cancelled future. The submitted parts end soon by
        themselves."""

    def close(self) -> None:
        """Does nothing: the Client belongs to the caller."""


def is_client(executor: object) -> bool:
    """Returns True if this is a Client of Dask. Does not import Dask: a program that has a Client has imported it."""
    kind = type(executor)
    return kind.__module__.startswith("distributed.") and hasattr(executor, "get_executor")


def engine_of(executor: Any) -> Pool | Dask:
    if executor is None:
        # One worker with one thread for each processor.
        return Pool(ThreadPoolExecutor(1, "thalweg-fleet"), own=True, threads=0)
    if is_client(executor):
        return Dask(executor)
    if isinstance(executor, Executor):
        # If the executor is a result of `Client.get_executor`, uses its Client, which provides more information.
        client = getattr(executor, "_client", None)
        return Dask(client) if is_client(client) else Pool(executor)
    kind = type(executor).__name__
    raise TypeError(f"executor must be a concurrent.futures.Executor, a Client of dask.distributed, or None, not {kind}")
