"""Copies a tree with the workers of any engine.

The caller makes the plan, submits parts of the work, and finishes the copy. A part is not a fixed set of files, but an order to work for
the fleet for some seconds. Each worker records its work in a journal on the file system of the destination. Therefore a part that is lost,
repeated or interrupted costs only time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from thalweg import _native
from thalweg._engines import Dask, Gone, Pool, Room, engine_of
from thalweg._errors import Error
from thalweg._files import Share
from thalweg._member import Orders, Sights, who

#: Duration of one part of the work, in seconds. If the caller is killed, workers continue for at most this long.
_PART = 10.0
#: Intervals in seconds of checks for finished parts, and of reports of progress.
_LOOK, _TELL = 0.2, 0.5
#: Time limit for workers to stop, in seconds.
_PATIENCE = 10.0
#: Number of failures for each submitted part after which the copy ends, unless tasks were finished since the last check.
_VAIN = 3
#: Maximum number of recorded failures.
_MOST_TROUBLES = 100


@dataclass(frozen=True)
class Worker:
    """The work of one process of a fleet, from its journal."""

    host: str
    process: int
    rank: int
    tasks: int
    bytes: int
    #: Time in seconds from the start of the worker to its last task, without the pauses between parts of the work.
    seconds: float
    #: Bytes moved by each mechanism; empty for a lost worker.
    shares: tuple[Share, ...]
    #: True if the worker did not report its end: it was killed, disconnected, or hangs. Tasks in its journal still count as done.
    lost: bool


@dataclass(frozen=True)
class FleetReport:
    """The result of a fleet."""

    #: Number of files of the tree; 0 if the copy existed already.
    files: int
    #: Bytes moved. Some bytes may be counted twice, because of lost workers and of workers that help each other.
    bytes: int
    #: Bytes moved by earlier calls.
    resumed: int
    #: Files that were read again and compared equal.
    verified: int
    seconds: float
    #: All workers, including those of earlier calls, but without the caller's own work at the end.
    workers: tuple[Worker, ...]
    #: Bytes that the caller moved itself at the end, by mechanism.
    shares: tuple[Share, ...]
    #: Failures that did not prevent the copy.
    troubles: tuple[str, ...]
    #: True if nothing was done, because a copy with the modification time and the names of the source already existed.
    was_there: bool = False

    @property
    def lost(self) -> tuple[Worker, ...]:
        """The lost workers."""
        return tuple(worker for worker in self.workers if worker.lost)

    @property
    def hosts(self) -> dict[str, dict[str, int]]:
        """Bytes by machine and mechanism, from workers that were not lost."""
        found: dict[str, dict[str, int]] = {}
        for host, shares in [*((worker.host, worker.shares) for worker in self.workers), (who()[0], self.shares)]:
            for share in shares:
                by_mechanism = found.setdefault(host, {})
                by_mechanism[share.mechanism] = by_mechanism.get(share.mechanism, 0) + share.bytes
        return found


class Incomplete(Error):
    """The tree was not copied completely. If the copy does not have its final name yet, repeat the call to continue it. Otherwise `files`
    are the entries that are wrong."""

    #: The first paths that are missing or wrong, relative to the source.
    files: tuple[str, ...] = ()
    #: Path of the unfinished copy; None if the copy has its final name.
    folder: str | None = None
    #: The failures.
    troubles: tuple[str, ...] = ()
    #: The result, if the copy has its final name.
    report: FleetReport | None = None


def copy_tree(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    executor: Executor | Any = None,
    verify: Literal["sha256", "blake3", "xxh3"] | None = None,
    fsync: Literal["never", "auto", "always"] | None = None,
    threads: int | None = None,
    limit: int | None = None,
    task_bytes: int = 128 << 20,
    wait: float = 60.0,
    progress: Callable[[int, int], object] | None = None,
) -> FleetReport:
    """Copies a directory to the new directory `destination` with all workers of `executor`, as `thalweg copy -a --shard` does.

    `executor` is a Client of dask.distributed, any `concurrent.futures.Executor`, or None for threads of this process. The workers and the
    caller must see both directories under the same paths. `destination` appears when the copy is complete. Until then the copy is in
    `.NAME.thalweg-fleet` beside it, and the same call, with any executor, continues it. Workers may be killed, and new ones may join, at any
    time.

    `verify` reads everything again at the end and compares. With `fsync="always"` everything is on stable storage at return. `threads` is
    the number for each worker (by default what the engine provides), and `limit` the maximum number of bytes per second of each. Work is
    submitted in tasks of about `task_bytes`. If no worker exists for `wait` seconds, the call fails. `progress(files, bytes)` is called
    several times a second. If it raises an exception, the copy ends, as after Ctrl-C.

    Raises Incomplete if the copy is not complete, and Error if it was not started.
    """
    engine = engine_of(executor)
    options = {"verify": verify, "fsync": fsync, "limit": limit}
    try:
        # Symbolic links in the paths are not resolved: their targets may differ between machines.
        ends = [os.path.join(os.getcwd(), os.fsdecode(end)) for end in (source, destination)]
        fleet = _Fleet(engine, ends[0], ends[1], options, threads, task_bytes, wait, progress)
        return fleet.copied()
    finally:
        engine.close()


@dataclass
class _Fleet:
    engine: Pool | Dask
    source: str
    destination: str
    options: dict[str, Any]
    threads: int | None
    task_bytes: int
    wait: float
    progress: Callable[[int, int], object] | None
    #: The submitted parts of the work, each with the number of the share that it does first.
    flying: dict[Future[dict[str, Any]], int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    #: Number of failures since the last check for progress, and the number of finished tasks at that check.
    vain: int = 0
    done: int = 0
    far: tuple[int, int] = (0, 0)

    def copied(self) -> FleetReport:
        began = time.monotonic()
        while True:
            folder = _native.fleet_begin(self.source, self.destination, self.options)
            if folder is None:
                return FleetReport(0, 0, 0, 0, time.monotonic() - began, (), (), (), was_there=True)
            # Another process may finish the copy at this moment, and remove the staging directory.
            with suppress(FileNotFoundError):
                sights = Sights.here(self.source, os.fspath(folder))
                break
        try:
            return self._copied(sights, os.fspath(folder), began)
        finally:
            with suppress(OSError):
                os.unlink(sights.nonce)

    def _copied(self, sights: Sights, folder: str, began: float) -> FleetReport:
        self._expect_all_see(sights, folder)
        planned = self._work({"duty": "plan", "task_bytes": self.task_bytes}, {"fsync": self.options["fsync"]})
        if planned["end"] == "there":
            return FleetReport(0, 0, 0, 0, time.monotonic() - began, (), (), (), was_there=True)
        before = self._status()
        resumed = 0 if before is None else sum(worker["bytes"] for worker in before["workers"])
        try:
            while True:
                try:
                    self._move(sights, planned["plan"])
                except Incomplete:
                    status = self._status()
                    # If all tasks are done, no worker is needed.
                    if status is None or status["done"] < status["tasks"]:
                        raise
                told = self._work({"duty": "finish"}, self.options)
                if told["end"] in ("finished", "there"):
                    break
                if told["halted"] == "full":
                    raise self._incomplete("the destination is full", errno.ENOSPC)
                # Waits, because another process is finishing the copy, or because the file system does not show all journals yet.
                time.sleep(_TELL)
        except BaseException:
            self._stop()
            raise
        return self._told(told, resumed, time.monotonic() - began)

    def _expect_all_see(self, sights: Sights, folder: str) -> None:
        """Checks that all workers see the same files as the caller, before the copy starts."""
        try:
            found = self.engine.troubles(sights)
        except (BrokenExecutor, Gone, CancelledError) as error:
            raise self._incomplete(f"no worker answers: {error or type(error).__name__}") from error
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            failure = Incomplete(f"a worker cannot take part: {found[0]}{more}")
            failure.folder, failure.troubles = folder, tuple(found)
            raise failure

    def _work(self, member: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Plans or finishes the copy in this process, on all processors, because no worker runs at that time."""
        tell = self.progress
        again = None if tell is None else lambda _files, _bytes: tell(*self.far)
        return _native.fleet_work(self.source, self.destination, options, member, again)

    def _move(self, sights: Sights, plan: int) -> None:
        """Submits work until all tasks are done."""
        room, told = self._room(), time.monotonic()
        options = {"fsync": self.options["fsync"], "limit": self.options["limit"]}
        options["threads"] = room.threads if self.threads is None else self.threads
        while True:
            ranks = set(range(room.flying))
            for rank in sorted(ranks.difference(self.flying.values())):
                orders = Orders(sights, self.destination, options, plan, rank, room.at_once, _PART)
                self.flying[self._submitted(orders)] = rank
            done, _ = futures.wait(self.flying, timeout=_LOOK, return_when=futures.FIRST_COMPLETED)
            if any([self._outcome(future) for future in done]):
                break
            if time.monotonic() >= told + _TELL:
                told = time.monotonic()
                self._tell()
            room = self._room()
        self.engine.cancel(self.flying)
        self.flying.clear()
        self._tell()

    def _room(self) -> Room:
        """Waits until the engine has capacity, and returns it."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                room = self.engine.room()
            except Gone as error:
                raise self._incomplete(str(error)) from error
            if isinstance(room, Room):
                return room
            if time.monotonic() >= deadline:
                raise self._incomplete(f"{room} for {self.wait:g} seconds")
            time.sleep(_LOOK)

    def _submitted(self, orders: Orders) -> Future[dict[str, Any]]:
        try:
            return self.engine.submit(orders)
        except Gone as error:
            raise self._incomplete(str(error)) from error

    def _outcome(self, future: Future[dict[str, Any]]) -> bool:
        """Returns True if all tasks are done, according to the journals that this process can see."""
        if self.flying.pop(future, None) is None:
            return False
        try:
            told = future.result()
        except BrokenExecutor as error:
            why = "the pool broke because one of its processes was killed"
            # Recreates the engine only once. If it breaks again, the work itself is probably the cause.
            if not self.engine.rebuild():
                raise self._incomplete(why) from error
            self._trouble(f"{why}; it was recreated")
            self.flying.clear()
            return False
        except Exception as error:
            self._in_vain(f"{type(error).__name__}: {error}")
            return False
        whose = f"{told['host']}, process {told['process']}"
        if "trouble" in told:
            self._in_vain(f"{whose}: {told['trouble']}")
            return False
        if told["halted"] == "full":
            raise self._incomplete("the destination is full", errno.ENOSPC)
        for said in told["errors"]:
            self._trouble(f"{whose}: {said}")
        if told["end"] in ("others", "there"):
            return True
        if not told["done"]:
            self._in_vain(f"{whose}: this worker could not do any of the remaining tasks")
        return False

    def _trouble(self, what: str) -> None:
        if what not in self.troubles and len(self.troubles) < _MOST_TROUBLES:
            self.troubles.append(what)

    def _in_vain(self, why: str) -> None:
        self._trouble(why)
        self.vain += 1
        if self.vain > _VAIN * (len(self.flying) + 1):
            status = self._status()
            done = 0 if status is None else status["done"]
            if done <= self.done:
                raise self._incomplete(f"no progress: {why}")
            # Workers have finished tasks since the last check, so the copy makes progress.
            self.done, self.vain = done, 0
        # Pauses before the next submission, because some failures are temporary.
        time.sleep(_LOOK)

    def _status(self) -> dict[str, Any] | None:
        """Returns the progress of all workers; None if it is not available now."""
        with suppress(OSError):
            return _native.fleet_status(self.destination)
        return None

    def _tell(self) -> None:
        if self.progress is None:
            return
        status = self._status()
        if status is not None:
            self.far = (status["done_files"], status["done_bytes"])
        self.progress(*self.far)

    def _stop(self) -> None:
        """Stops all workers before the caller returns. Disconnected workers stop soon after."""
        with suppress(OSError):
            _native.fleet_stop(self.destination)
        self.engine.cancel(self.flying)
        futures.wait(self.flying, timeout=_PATIENCE)

    def _incomplete(self, why: str, number: int | None = None) -> Incomplete:
        """Returns the exception that lists the missing files."""
        files: list[str] = []
        far = ""
        status = self._status()
        with suppress(OSError):
            files = [os.fspath(path) for path in _native.fleet_left(self.destination)]
        if status is not None:
            far = f"; {status['done']} of {status['tasks']} tasks are done in {os.fspath(status['folder'])!r}; repeat the call to continue"
        left = f"; left: {', '.join(map(repr, files[:3]))}{' ...' if len(files) > 3 else ''}" if files else ""
        message = f"{why}{far}{left}"
        failure = Incomplete(message) if number is None else Incomplete(number, message)
        failure.files, failure.troubles = tuple(files), tuple(self.troubles)
        failure.folder = None if status is None else os.fspath(status["folder"])
        return failure

    def _told(self, told: dict[str, Any], resumed: int, seconds: float) -> FleetReport:
        if told["end"] == "there":
            self._trouble("another process finished the copy")
        workers = tuple(Worker(**{**one, "shares": _shares(one)}) for one in told["workers"])
        moved = sum(worker.bytes for worker in workers) + told["bytes"] - resumed
        verified, shares = told["verified"], _shares(told)
        report = FleetReport(
            told["files"], max(0, moved), resumed, verified, seconds, workers, shares, tuple(self.troubles)
        )
        if told["error_count"] or told["changed_count"]:
            raise _flawed(told, report)
        return report


def _shares(told: dict[str, Any]) -> tuple[Share, ...]:
    return tuple(Share(*share) for share in told["shares"])


def _flawed(told: dict[str, Any], report: FleetReport) -> Incomplete:
    """Returns the exception for a copy that has its final name, but is not complete."""
    changed = [os.fspath(path) for path in told["changed"]]
    if told["errors"]:
        count = told["error_count"]
        why = told["errors"][0] + (f" (and {count - 1} more)" if count > 1 else "")
    else:
        why = f"{told['changed_count']} of the sources changed during the copy; their copies have the final contents: {changed[0]!r}"
    failure = Incomplete(why) if told["errno"] is None else Incomplete(told["errno"], why)
    failure.files = tuple(changed + [os.fspath(path) for path in told["failed"]])
    failure.troubles, failure.report = report.troubles, report
    return failure
