"""Memory that one process fills and passes to another process batch by batch. The other process returns the memory for reuse.

The filling process (`Lender`) has several regions, its slots. It passes a slot as a `Ticket`, which can be pickled. The receiving process
(`redeemed`) maps each slot once, and returns it when the last object over its memory is freed. Therefore, after the first batches, no new
memory is allocated.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from thalweg._errors import Error, made
from thalweg._region import Region

#: Number of slots of one process whose memory the receiver uses in place. Batches in other slots are copied, so that a program that keeps
#: all batches does not run out of descriptors or slots.
_STAYS = 8
#: Slot sizes are multiples of this number of bytes, so that batches of similar size can share slots.
_ROUND = 64 << 10
#: The message that returns a slot: its number, or -1 minus the number if its memory must not be written again.
_BACK = struct.Struct("<i")


@dataclass(frozen=True)
class Ticket:
    """Identifies a slot for the process that receives it."""

    process: int
    #: The pipe through which the slot is returned: its descriptor in that process, and its identity.
    back: tuple[int, tuple[int, int]]
    slot: int
    region: tuple[int, tuple[int, int]]
    used: int


class Lender:
    """The slots of the process that fills them. A forked child creates its own."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._regions: list[Region] = []
        self._free: set[int] = set()
        #: Free slots whose memory must be replaced, because a forked child has mapped it.
        self._spent: set[int] = set()

    def is_here(self) -> bool:
        return self._process == os.getpid()

    def taken(self, size: int) -> tuple[Ticket, memoryview]:
        """Returns a ticket and memory of `size` bytes. It never waits: if no slot is free, a new one is created."""
        self._look()
        slot = self._best(size)
        region = self._regions[slot]
        ticket = Ticket(
            self._process,
            (self._writer, _identity(self._writer)),
            slot,
            (region.fileno(), _identity(region.fileno())),
            size,
        )
        self._free.discard(slot)
        return ticket, region.view[:size]

    def untaken(self, ticket: Ticket) -> None:
        """Releases a ticket that was not passed on."""
        self._free.add(ticket.slot)

    def _look(self) -> None:
        """Reads which slots were returned."""
        with suppress(BlockingIOError):
            while heard := os.read(self._reader, 1 << 12):
                for (number,) in _BACK.iter_unpack(heard):
                    slot = number if number >= 0 else -1 - number
                    self._free.add(slot)
                    if number < 0:
                        self._spent.add(slot)

    def _best(self, size: int) -> int:
        """Returns a free slot that is large enough, preferably one of the first `_STAYS`, and then the smallest. If none is large enough,
        replaces the memory of the first free slot. If none is free, creates a slot."""
        enough = [slot for slot in self._free - self._spent if len(self._regions[slot]) >= size]
        if enough:
            return min(enough, key=lambda slot: (slot >= _STAYS, len(self._regions[slot]), slot))
        region = Region(-(-max(size, 1) // _ROUND) * _ROUND)
        if not self._free:
            self._regions.append(region)
            return len(self._regions) - 1
        slot = min(self._free)
        self._regions[slot] = region
        self._spent.discard(slot)
        return slot


class _Borrowed:
    """The slots of another process that this process uses."""

    def __init__(self, ticket: Ticket) -> None:
        self.key = _key(ticket)
        self.back = _opened(ticket.process, ticket.back, os.O_WRONLY)
        self.regions: dict[int, tuple[tuple[int, int], Region]] = {}
        #: Slot numbers that could not be written yet, because the pipe was full.
        self.due: deque[int] = deque()

    def region(self, ticket: Ticket) -> Region:
        descriptor, identity = ticket.region
        known = self.regions.get(ticket.slot)
        if known is None or known[0] != identity:
            try:
                region = Region._opened(f"/proc/{ticket.process}/fd/{descriptor}", identity, writable=True)
            except Error as error:
                raise _gone(ticket.process, error) from error
            known = self.regions[ticket.slot] = (identity, region)
        return known[1]

    def tell(self, number: int) -> None:
        """Returns a slot to its lender. The interpreter may call this while another call is in progress, because it is called when an
        object is freed. Therefore each call removes a number from `due` before it writes the number."""
        self.due.append(number)
        if self.is_gone():
            # The lender has ended, so this skips the write, which could raise SIGPIPE.
            _others.pop(self.key, None)
            return
        with suppress(IndexError):
            while True:
                told = self.due.popleft()
                try:
                    os.write(self.back, _BACK.pack(told))
                except BlockingIOError:
                    self.due.append(told)
                    return
                except OSError:
                    _others.pop(self.key, None)

    def is_gone(self) -> bool:
        poll = select.poll()
        poll.register(self.back, 0)
        return bool(poll.poll(0))

    def __del__(self) -> None:
        if hasattr(self, "back"):
            os.close(self.back)


class _Use:
    """A slot in use here, until the last object over its memory is freed."""

    def __init__(self, lender: _Borrowed, slot: int, memory: Any) -> None:
        self._lender, self._slot, self._process = lender, slot, os.getpid()
        #: True if a forked child has mapped the memory. In that case, the lender must not fill the memory again.
        self.is_shared = False
        self._gone = weakref.ref(memory, self._end)
        _uses.add(self)

    def _end(self, _: object) -> None:
        _uses.discard(self)
        # A forked child must not return the slot, because the parent may still use it.
        if os.getpid() == self._process:
            self._lender.tell(-1 - self._slot if self.is_shared else self._slot)


_others: dict[tuple[int, tuple[int, int]], _Borrowed] = {}
_uses: set[_Use] = set()


def _before_fork() -> None:
    for use in list(_uses):
        use.is_shared = True


os.register_at_fork(before=_before_fork, after_in_child=_others.clear)


def redeemed(ticket: Ticket) -> Any:
    """Returns the memory of a ticket, as an object with the buffer protocol. Raises PeerDied if its process has ended and its slots were
    not opened before."""
    key = _key(ticket)
    lender = _others.get(key)
    if lender is None:
        forget()
        lender = _others[key] = _Borrowed(ticket)
    region = lender.region(ticket)
    # Creates one object for each use of a slot. All views of the memory keep this object alive.
    memory = (ctypes.c_ubyte * ticket.used).from_buffer(region.view)
    if ticket.slot < _STAYS:
        _Use(lender, ticket.slot, memory)
        return memory
    copied = (ctypes.c_ubyte * ticket.used)()
    ctypes.memmove(copied, memory, ticket.used)
    del memory
    lender.tell(ticket.slot)
    return copied


def forget() -> None:
    """Releases the slots of processes that have ended. Views of a slot keep its memory alive."""
    for key, lender in list(_others.items()):
        if lender.is_gone():
            _others.pop(key, None)


def _key(ticket: Ticket) -> tuple[int, tuple[int, int]]:
    return ticket.process, ticket.back[1]


def _identity(descriptor: int) -> tuple[int, int]:
    stat = os.fstat(descriptor)
    return stat.st_dev, stat.st_ino


def _opened(process: int, what: tuple[int, tuple[int, int]], how: int) -> int:
    try:
        descriptor = os.open(f"/proc/{process}/fd/{what[0]}", how | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _gone(process, error) from error
    if _identity(descriptor) != what[1]:
        os.close(descriptor)
        raise _gone(process, FileNotFoundError())
    return descriptor


def _gone(process: int, error: OSError) -> Error:
    """Returns the error for a ticket whose slot cannot be opened."""
    if error.errno in (None, errno.ENOENT, errno.ESRCH):
        return made("PeerDied", None, f"process {process}, which sent this batch, has ended", 0, None)
    return made("Error", error.errno, f"cannot open the memory of process {process}: {error.strerror}", 0, None)
