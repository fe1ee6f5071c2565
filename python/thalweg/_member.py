"""Functions that an engine runs for a fleet, on any machine. pickle stores only their names, so all machines need this
package."""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from thalweg import _native

#: Pause in seconds of a worker that finds no task, so that it does not request work continuously.
_AGAIN = 0.5

# The idle workers of this process, by plan. A later part of the work resumes one of them, with its journal.
_idle: dict[int, list[tuple[int, int]]] = {}
# The contents of the nonce files of fleets for which this process has already passed the check.
_fit: set[str] = set()


def our_version() -> str:
    try:
        return version("thalweg")
    except PackageNotFoundError:
        return "not installed"


def who() -> tuple[str, int]:
    """Returns the name of the machine and the process."""
    return os.uname().nodename, os.getpid()


@dataclass(frozen=True)
class Sights:
    """Properties of the files that must look alike for all workers of a fleet."""

    version: str
    source: str
    #: Inode number, modification and change times of the source directory, and a checksum of the names in it. Nothing is
    #: written there.
    inode: int
    times: tuple[int, int]
    names: int
    #: A file on the destination's file system, and its contents.
    nonce: str
    content: str

    @classmethod
    def here(cls, source: str, folder: str) -> Sights:
        content = os.urandom(16).hex()
        nonce = os.path.join(folder, f"hello.{content}")
        with open(nonce, "x") as file:
            file.write(content)
        return cls(our_version(), source, *_seen(source), nonce, content)

    def missed(self) -> str | None:
        """Returns the reason why this process cannot take part."""
        if our_version() != self.version:
            return f"it has thalweg {our_version()}, the caller has {self.version}"
        try:
            inode, times, names = _seen(self.source)
        except OSError as error:
            return f"it cannot see the source: {error}"
        # Inode numbers of some file systems differ between machines, and an entry may change during this check. So either the
        # inode and the times must agree, or the names and one of inode and modification time.
        is_same = (inode, times) == (self.inode, self.times)
        if not is_same and (names != self.names or (inode != self.inode and times[0] != self.times[0])):
            return f"it sees another directory at the path of the source, {self.source!r}"
        try:
            with open(self.nonce) as file:
                if file.read() != self.content:
                    return "it sees another file at the path of a file of the destination"
        except OSError as error:
            return f"it cannot see the file system of the destination: {error}"
        return None


def _seen(source: str) -> tuple[int, tuple[int, int], int]:
    stat = os.stat(source)
    # Python's `hash` differs between processes.
    names = zlib.crc32(b"\0".join(sorted(os.fsencode(name) for name in os.listdir(source))))
    return stat.st_ino, (stat.st_mtime_ns, stat.st_ctime_ns), names


def hello(sights: Sights) -> tuple[str, int, str | None]:
    """Returns the identity of this process, and the reason why it cannot take part."""
    return (*who(), sights.missed())


@dataclass(frozen=True)
class Orders:
    """A part of the work. Any worker may run it. The engine may lose it, or run it several times."""

    sights: Sights
    destination: str
    options: dict[str, Any]
    plan: int
    #: The share of the work that this part does first, and the number of shares.
    rank: int
    size: int
    #: Time in seconds after which no further task is started.
    within: float


def move(orders: Orders) -> dict[str, Any]:
    """Works on tasks of the fleet for a while. Also takes tasks of other workers."""
    host, process = who()
    told: dict[str, Any] = {"host": host, "process": process}
    try:
        if orders.sights.content not in _fit:
            missed = orders.sights.missed()
            if missed:
                return _failed(told, missed)
            _fit.add(orders.sights.content)
        return told | _moved(orders)
    except Exception as error:
        return _failed(told, str(error))


def _failed(told: dict[str, Any], why: str) -> dict[str, Any]:
    time.sleep(_AGAIN)
    return told | {"trouble": why}


def _moved(orders: Orders) -> dict[str, Any]:
    idle = _idle.setdefault(orders.plan, [])
    try:
        began, rank = idle.pop()
    except IndexError:
        began, rank = time.time_ns(), orders.rank
    mine = {"duty": "move", "plan": orders.plan, "within": orders.within, "began": began, "rank": rank, "size": orders.size}
    told = _native.fleet_work(orders.sights.source, orders.destination, orders.options, mine)
    # A worker that failed is not reused, because its journal may end in an incomplete line.
    if not told["errors"] and told["halted"] is None:
        idle.append((began, rank))
    return told
