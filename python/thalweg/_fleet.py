"""A tree copied by the workers of any engine.

Who calls makes the plan, hands out parts of the work, and finishes. The parts are all alike: "work on that fleet for a while". What a
worker did is in its journal, on the file system of the destination, so a part that is lost, done twice or cut short costs time and no more.
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

#: Seconds of one part of the work. Workers whose caller is killed go on for so long.
_PART = 10.0
#: How often it is looked who is done, and how often how far all are, in seconds.
_LOOK, _TELL = 0.2, 0.5
#: How long workers may take to stop, in seconds.
_PATIENCE = 10.0
#: So often in a row, for each part that is on its way, may nothing come of it.
_VAIN = 3
#: More troubles are counted by nobody.
_MOST_TROUBLES = 100


@dataclass(frozen=True)
class Worker:
    """What a process did for a fleet, by its own journal."""

    host: str
    process: int
    rank: int
    tasks: int
    bytes: int
    #: From its beginning to its last task, without the time in which it had no orders.
    seconds: float
    #: Which mechanism moved how much; empty of one that was lost.
    shares: tuple[Share, ...]
    #: It did not come to its own end: it was killed or cut off, or stands still. What it had noted counts.
    lost: bool


@dataclass(frozen=True)
class FleetReport:
    """What a fleet did."""

    #: Files of the tree; 0 if it was there already.
    files: int
    #: Bytes that were moved, some of them twice where workers were lost or helped each other.
    bytes: int
    #: Bytes that earlier calls had moved.
    resumed: int
    #: Files that were read again and are equal.
    verified: int
    seconds: float
    #: Everybody who worked on it, in earlier calls too; without what the caller did at the end.
    workers: tuple[Worker, ...]
    #: By which mechanism the caller moved what no worker had.
    shares: tuple[Share, ...]
    #: What went wrong on the way and was got over.
    troubles: tuple[str, ...]
    #: The copy was there when this began, with the time and the names of the source: nothing was done.
    was_there: bool = False

    @property
    def lost(self) -> tuple[Worker, ...]:
        """The workers that were lost."""
        return tuple(worker for worker in self.workers if worker.lost)

    @property
    def hosts(self) -> dict[str, dict[str, int]]:
        """Machine -> mechanism -> bytes, as far as they lived to tell."""
        found: dict[str, dict[str, int]] = {}
        for host, shares in [*((worker.host, worker.shares) for worker in self.workers), (who()[0], self.shares)]:
            for share in shares:
                by_mechanism = found.setdefault(host, {})
                by_mechanism[share.mechanism] = by_mechanism.get(share.mechanism, 0) + share.bytes
        return found


class Incomplete(Error):
    """Not all of a tree was copied. The same call goes on where it stopped, unless the copy has its name: then `files` are what is wrong
    with it."""

    #: What is missing, below the source, or is wrong: the first of them.
    files: tuple[str, ...] = ()
    #: Where the unfinished copy is; None if the copy has its name.
    folder: str | None = None
    #: What went wrong on the way.
    troubles: tuple[str, ...] = ()
    #: What was done, where the copy has its name.
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
    """Copies a folder to the new folder `destination` with all workers of `executor`, as `thalweg copy -a --shard` does.

    `executor` is a Client of dask.distributed, any `concurrent.futures.Executor`, or None for threads of this process. Its workers, and
    the caller, see both folders under the same names. Nothing has the name `destination` before all is there; until then it is in
    `.NAME.thalweg-fleet` beside it, and the same call, with whatever executor, goes on with that. Workers may be killed, and others may
    come, at any time.

    `verify` reads everything again at the end and compares, with `fsync="always"` all is on stable storage at return. `threads` are of each
    worker (by default as many as the engine gives it), `limit` is the most bytes per second of each. Work is handed out in pieces of
    about `task_bytes`. Without any worker for `wait` seconds it gives up. `progress(files, bytes)` is called some times a second; what it
    raises ends the copy, as Ctrl-C does.

    Incomplete if the copy is not complete; Error if nothing was begun.
    """
    engine = engine_of(executor)
    options = {"verify": verify, "fsync": fsync, "limit": limit}
    try:
        # Links stay in the paths: where they lead is for each machine to say.
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
    #: The parts of the work that are on their way, and which share each does first.
    flying: dict[Future[dict[str, Any]], int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    #: So often in a row nothing came of a part, and how many tasks were done then.
    vain: int = 0
    done: int = 0
    far: tuple[int, int] = (0, 0)

    def copied(self) -> FleetReport:
        began = time.monotonic()
        while True:
            folder = _native.fleet_begin(self.source, self.destination, self.options)
            if folder is None:
                return FleetReport(0, 0, 0, 0, time.monotonic() - began, (), (), (), was_there=True)
            # Another may finish just now, and remove it.
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
                    # Nobody is needed any more where everything is done.
                    if status is None or status["done"] < status["tasks"]:
                        raise
                told = self._work({"duty": "finish"}, self.options)
                if told["end"] in ("finished", "there"):
                    break
                if told["halted"] == "full":
                    raise self._incomplete("the destination is full", errno.ENOSPC)
                # Another finishes, or a file system has not shown all journals yet.
                time.sleep(_TELL)
        except BaseException:
            self._stop()
            raise
        return self._told(told, resumed, time.monotonic() - began)

    def _expect_all_see(self, sights: Sights, folder: str) -> None:
        """Asks all workers whether they see what the caller sees, before anything is done."""
        try:
            found = self.engine.troubles(sights)
        except (BrokenExecutor, Gone, CancelledError) as error:
            raise self._incomplete(f"nobody answers: {error or type(error).__name__}") from error
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            failure = Incomplete(f"a worker cannot take part: {found[0]}{more}")
            failure.folder, failure.troubles = folder, tuple(found)
            raise failure

    def _work(self, member: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """The caller's own part, with all processors: nobody else works at that time."""
        tell = self.progress
        again = None if tell is None else lambda _files, _bytes: tell(*self.far)
        return _native.fleet_work(self.source, self.destination, options, member, again)

    def _move(self, sights: Sights, plan: int) -> None:
        """Hands out work until all tasks are done."""
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
        """What the engine can do, as soon as it can do something."""
        deadline = time.monotonic() + self.wait
        while True:
            try:
                room = self.engine.room()
            except Gone as error:
                raise self._incomplete(str(error)) from error
            if isinstance(room, Room):
                return room
            if time.monotonic() >= deadline:
                raise self._incomplete(f"{room}, for {self.wait:g} seconds")
            time.sleep(_LOOK)

    def _submitted(self, orders: Orders) -> Future[dict[str, Any]]:
        try:
            return self.engine.submit(orders)
        except Gone as error:
            raise self._incomplete(str(error)) from error

    def _outcome(self, future: Future[dict[str, Any]]) -> bool:
        """Whether all tasks are done, as far as this one can tell."""
        if self.flying.pop(future, None) is None:
            return False
        try:
            told = future.result()
        except BrokenExecutor as error:
            why = "the pool broke: one of its processes was killed"
            # Once: what kills the next one too is in the work.
            if not self.engine.rebuild():
                raise self._incomplete(why) from error
            self._trouble(f"{why}; it was made anew")
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
            self._in_vain(f"{whose}: it could do none of what is left")
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
                raise self._incomplete(f"nothing comes of it any more: {why}")
            # Others come on.
            self.done, self.vain = done, 0
        # Some things pass.
        time.sleep(_LOOK)

    def _status(self) -> dict[str, Any] | None:
        """How far all are; None if that cannot be found out now."""
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
        """Nobody works any more when the caller is told that it is over; who is cut off, soon after."""
        with suppress(OSError):
            _native.fleet_stop(self.destination)
        self.engine.cancel(self.flying)
        futures.wait(self.flying, timeout=_PATIENCE)

    def _incomplete(self, why: str, number: int | None = None) -> Incomplete:
        """What is left, as an exception."""
        files: list[str] = []
        far = ""
        status = self._status()
        with suppress(OSError):
            files = [os.fspath(path) for path in _native.fleet_left(self.destination)]
        if status is not None:
            far = f"; {status['done']} of {status['tasks']} tasks are done, the same call goes on: {os.fspath(status['folder'])!r}"
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
    """A copy that has its name, and not everything in it."""
    changed = [os.fspath(path) for path in told["changed"]]
    if told["errors"]:
        count = told["error_count"]
        why = told["errors"][0] + (f" (and {count - 1} more)" if count > 1 else "")
    else:
        why = f"{told['changed_count']} of the sources changed while being copied, and are there as they were at the end: {changed[0]!r}"
    failure = Incomplete(why) if told["errno"] is None else Incomplete(told["errno"], why)
    failure.files = tuple(changed + [os.fspath(path) for path in told["failed"]])
    failure.troubles, failure.report = report.troubles, report
    return failure
