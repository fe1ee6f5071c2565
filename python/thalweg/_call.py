"""Connects a process that puts items into a queue with the process that gets them.

The process that gets listens at an abstract socket, which has no file and ends with the process. At its first `put`, a process connects
to it and sends the key and its identity. A thread of the listening process (`_door`) answers with `WELCOME`, and the sender then offers a
ring over the same socket. If the ring is too small for an item, the sender closes it and connects again under the next number. The
receiver reads the rings in order of their numbers, so items stay in order.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass

from thalweg import _native
from thalweg._errors import Closed, Error, Timeout, made
from thalweg._native import Producer
from thalweg._threads import begun

#: The first message: the key, the identity of the sender, and the number of its ring.
CALL = struct.Struct("<16s16sQ")
WELCOME = b"\1"
#: Time limit of a handshake, as in the extension module, in seconds.
PATIENCE = 5.0
#: Interval between attempts to connect to a busy process, in seconds.
_AGAIN = 0.01
#: PF_EXITING, a flag of a process in the kernel (linux/sched.h).
_PF_EXITING = 4


@dataclass(frozen=True)
class Address:
    """The address at which the receiver of a queue listens, and the key that it requires."""

    name: str
    key: bytes
    #: The process that created the queue.
    owner: int

    @classmethod
    def new(cls) -> Address:
        return cls(f"\0thalweg-{os.getpid()}-{secrets.token_hex(16)}", secrets.token_bytes(16), os.getpid())

    def is_ours(self) -> bool:
        return self.owner == os.getpid()


def new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def process_of(connected: socket.socket) -> int | None:
    """Returns the process at the other end; None if it belongs to another user."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3I"))
    process, user, _ = struct.unpack("3I", told)
    return int(process) if user == os.geteuid() else None


def watched(pid: int) -> int | None:
    """Returns a descriptor that becomes readable when a process ends, even if a child keeps its sockets open."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _is_ending(pid: int) -> bool:
    """Returns True if a process has ended or is exiting. An exiting process closes its sockets before it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            flags = int(stat.read().rpartition(b")")[2].split()[6])
    except (OSError, IndexError, ValueError):
        return True
    return bool(flags & _PF_EXITING)


def left(deadline: float | None) -> float | None:
    """Returns the seconds until the deadline, at least 0; None without a limit."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class Calling:
    """A connection attempt in a thread, so that it continues while no `put` is waiting."""

    def __init__(self, address: Address, call: tuple[bytes, int], room: tuple[int, int | None]) -> None:
        self.address, self.call = address, CALL.pack(address.key, *call)
        self.size, self.capacity = room
        self.end: Producer | None = None
        self.error: Exception | None = None
        self.over = threading.Event()
        #: Time after which a listening process counts as slow to answer.
        self.usual_end = time.monotonic() + PATIENCE
        begun("thalweg-call", self._run)

    def _run(self) -> None:
        try:
            while self.end is None:
                self.end = self._called()
        except Exception as error:
            self.error = error
        finally:
            self.over.set()

    def _gone(self) -> Error:
        """Returns the error for a receiver that no longer listens."""
        if _is_ending(self.address.owner):
            return made("PeerDied", None, "the process that created the queue has ended", 0, None)
        return made("Closed", None, "the queue was closed by the process that created it", 0, None)

    def _called(self) -> Producer | None:
        """Connects and returns the sending end; None if the attempt must be repeated."""
        with new_socket() as call:
            try:
                call.connect(self.address.name)
            except BlockingIOError:
                # The listener's queue is full.
                time.sleep(_AGAIN)
                return None
            except ConnectionRefusedError:
                raise self._gone() from None
            listener = process_of(call)
            if listener is None:
                # The name belongs to another user now, who must not get the key.
                raise made("PeerDied", None, "the process that created the queue has ended", 0, None)
            process = watched(listener)
            try:
                call.send(self.call)
                poll = select.poll()
                poll.register(call, select.POLLIN)
                if process is not None:
                    poll.register(process, select.POLLIN)
                told = dict(poll.poll())
                if call.fileno() not in told:
                    raise made("PeerDied", None, "the process that created the queue was killed", 0, None)
                if call.recv(1) != WELCOME:
                    # The queue was closed, or the name now belongs to another queue. The next attempt finds out which.
                    time.sleep(_AGAIN)
                    return None
                end = _native.offer_over(call, capacity=self.capacity, parts=False)
                end.open(self.size, timeout=PATIENCE)
                return end
            except (BrokenPipeError, ConnectionResetError, Closed, Timeout):
                time.sleep(_AGAIN)
                return None
            finally:
                if process is not None:
                    os.close(process)
