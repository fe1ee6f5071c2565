"""What an engine runs for a fleet, on whatever machine. It is found there by name: so that package has to be the same."""

from __future__ import annotations

import os
import time
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from thalweg import _native

#: So that one who can do nothing does not ask for work all the time, in seconds.
_AGAIN = 0.5

# By plan, who was at work in this process and is not now: each goes on with its own journal.
_idle: dict[int, list[tuple[int, int]]] = {}
# By its nonce, each fleet of which this process was seen to see all.
_fit: set[str] = set()


def our_version() -> str:
    try:
        return version("thalweg")
    except PackageNotFoundError:
        return "not installed"


def who() -> tuple[str, int]:
    """The machine and the process."""
    return os.uname().nodename, os.getpid()


@dataclass(frozen=True)
class Sights:
    """What everybody of a fleet has to see alike."""

    version: str
    source: str
    #: Of the source: number, times of modification and change, names. Nothing is written there.
    inode: int
    times: tuple[int, int]
    names: int
    #: A file on the destination's file system, and what is in it.
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
        """Why this process cannot take part."""
        if our_version() != self.version:
            return f"it has thalweg {our_version()}, and the caller {self.version}"
        try:
            inode, times, names = _seen(self.source)
        except OSError as error:
            return f"it does not see the source: {error}"
        # Some file systems number anew on each machine, and a name may come or go just now: not all at once.
        is_same = (inode, times) == (self.inode, self.times)
        if not is_same and (names != self.names or (inode != self.inode and times[0] != self.times[0])):
            return f"it sees another folder under the name of the source, {self.source!r}"
        try:
            with open(self.nonce) as file:
                if file.read() != self.content:
                    return "it sees another file under the name of one of the destination"
        except OSError as error:
            return f"it does not see the destination's file system: {error}"
        return None


def _seen(source: str) -> tuple[int, tuple[int, int], int]:
    stat = os.stat(source)
    # Python's own `hash` is another in each process.
    names = zlib.crc32(b"\0".join(sorted(os.fsencode(name) for name in os.listdir(source))))
    return stat.st_ino, (stat.st_mtime_ns, stat.st_ctime_ns), names


def hello(sights: Sights) -> tuple[str, int, str | None]:
    """Who this is, and why it cannot take part."""
    return (*who(), sights.missed())


@dataclass(frozen=True)
class Orders:
    """A part of the work. It can be given to anybody, twice, or be lost: nothing in it is anybody's alone."""

    sights: Sights
    destination: str
    options: dict[str, Any]
    plan: int
    #: The share of the work that is done first, of so many; from there on none.
    rank: int
    size: int
    #: No task is begun after so many seconds.
    within: float


def move(orders: Orders) -> dict[str, Any]:
    """Does tasks of the fleet for a while, whoever's they are."""
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
    # Who failed does not come back: its journal may end in half a line.
    if not told["errors"] and told["halted"] is None:
        idle.append((began, rank))
    return told
